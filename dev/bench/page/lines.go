package page

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// key identifies the table line of a row.
type key struct {
	group, entry int // places in the table
	input        string
	threads      int
}

// figure is a row with the run that measured it.
type figure struct {
	*result
	row *bench.Row
}

// line is a line with the figures of each machine, the newest first.
type line struct {
	key
	cells map[string][]figure
}

// table prints a table, or a note that it has no results.
func (p *page) table(b *strings.Builder, t *table) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", t.title, t.about)
	lines := p.lines(t)
	var machines []string
	for _, m := range p.machines {
		if slices.ContainsFunc(lines, func(l *line) bool { return l.cells[m] != nil }) {
			machines = append(machines, m)
		}
	}
	if len(lines) == 0 {
		b.WriteString("No figures.\n")
		return
	}
	bench.MarkdownLine(b, append([]string{"what", "on", "threads"}, machines...)...)
	b.WriteString("|" + strings.Repeat("---|", 3+len(machines)) + "\n")
	for _, l := range lines {
		g := &t.groups[l.group]
		e := &g.rows[l.entry]
		what := e.name
		if g.title != "" {
			what = g.title + ", " + what
		}
		cells := []string{what, l.input, strconv.Itoa(l.threads)}
		for _, m := range machines {
			cells = append(cells, p.cell(g.unit, e, l.cells[m]))
		}
		bench.MarkdownLine(b, cells...)
	}
}

// lines lists the lines that results have anything for.
func (p *page) lines(t *table) []*line {
	byKey := map[key]*line{}
	var lines []*line
	for _, r := range p.results {
		for i := range t.groups {
			g := &t.groups[i]
			inputs := regexp.MustCompile(`^(?:` + g.inputs + `)$`)
			for _, row := range r.Rows {
				j := slices.IndexFunc(g.rows, func(e entry) bool { return row.Group == g.name && row.Program == e.program && row.Name == e.name })
				if j < 0 || g.inputs != "" && !inputs.MatchString(row.Input) {
					continue
				}
				f := figure{r, row}
				if _, known := f.verdict(&g.rows[j]); !row.Measured() && !known {
					continue
				}
				k := key{i, j, on(row), r.Environment.Threads}
				if byKey[k] == nil {
					byKey[k] = &line{k, map[string][]figure{}}
					lines = append(lines, byKey[k])
				}
				byKey[k].cells[r.machine] = append(byKey[k].cells[r.machine], f)
			}
		}
	}
	slices.SortFunc(lines, func(a, b *line) int {
		return cmp.Or(a.group-b.group, natural(a.input, b.input), a.entry-b.entry, a.threads-b.threads)
	})
	return lines
}

// on describes the input of a row. Files of one name have several sizes; models are identified by name.
func on(row *bench.Row) string {
	if (row.Input == "base" || row.Input == "adapter") && row.Bytes > 0 {
		return fmt.Sprintf("%s, %.4g MB", row.Input, float64(row.Bytes)/1e6)
	}
	return shape.ReplaceAllString(row.Input, "$1, ")
}

// shape matches the text after the name of a model.
var shape = regexp.MustCompile(`^([\w.-]+): \d+×\d+, MLP \d+, vocabulary \d+, `)

var digits = regexp.MustCompile(`\d+`)

// natural compares texts with the numbers in them as numbers; models come by
// their sizes.
func natural(a, b string) int {
	if c := size(a) - size(b); c != 0 {
		return c
	}
	pad := func(s string) string {
		return digits.ReplaceAllStringFunc(s, func(d string) string { return fmt.Sprintf("%012s", d) })
	}
	return cmp.Or(strings.Compare(pad(a), pad(b)), strings.Compare(a, b))
}

// size returns the index of a model among the measured ones.
func size(input string) int {
	name, _, _ := strings.Cut(input, ",")
	return slices.Index([]string{"tiny", "small", "wide", "large", "qwen-0.5b", "qwen-7b"}, name)
}
