package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Markdown formats the report as tables: one per group, with a line per operation and columns per input, and one of
// the targets.
func (r *Report) Markdown() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s\n", r.Environment)
	for rows := range r.groups() {
		markdownGroup(b, rows)
	}
	if verdicts := r.Verdicts(); len(verdicts) > 0 {
		b.WriteString("\n### Marks\n\n")
		tableHead(b, "what", "beside", "asked", "found", "")
		for _, v := range verdicts {
			MarkdownLine(b, v.Name, v.Beside, v.asked(), fmt.Sprintf("%.3f", v.Ratio), v.word())
		}
	}
	return b.String()
}

// manyInputs is the maximum number of inputs that a group shows as columns. With more, each input gets its own lines.
const manyInputs = 2

func markdownGroup(b *strings.Builder, rows []*Row) {
	var inputs []string
	for _, row := range rows {
		if !slices.Contains(inputs, row.Input) {
			inputs = append(inputs, row.Input)
		}
	}
	fmt.Fprintf(b, "\n### %s\n\n", rows[0].Group)
	t := columnsOf(rows)
	if len(inputs) > manyInputs {
		t.long(b, rows)
	} else {
		t.wide(b, rows, inputs)
	}
}

// long writes one line per row.
func (t columns) long(b *strings.Builder, rows []*Row) {
	titles := append([]string{"program", "what", "on"}, t.titles("")...)
	if t.details {
		titles = append(titles, "")
	}
	tableHead(b, titles...)
	for _, row := range rows {
		c := row.cells()
		line := append([]string{row.Program, row.Name, row.Input}, t.figures(c)...)
		if t.details {
			line = append(line, c.remark)
		}
		MarkdownLine(b, line...)
	}
}

// wide writes columns per input.
func (t columns) wide(b *strings.Builder, rows []*Row, inputs []string) {
	titles := []string{"program", "what"}
	for _, in := range inputs {
		titles = append(titles, t.titles(in+": ")...)
	}
	if t.details {
		titles = append(titles, "")
	}
	tableHead(b, titles...)
	for i, row := range rows {
		same := func(other *Row) bool { return other.Program == row.Program && other.Name == row.Name }
		if slices.ContainsFunc(rows[:i], same) {
			continue
		}
		line, said := []string{row.Program, row.Name}, []string{}
		for _, in := range inputs {
			at := slices.IndexFunc(rows, func(other *Row) bool { return same(other) && other.Input == in })
			if at < 0 {
				line = append(line, t.figures(cells{})...)
				continue
			}
			c := rows[at].cells()
			if c.remark != "" && !slices.Contains(said, c.remark) {
				said = append(said, c.remark)
			}
			line = append(line, t.figures(c)...)
		}
		if t.details {
			line = append(line, strings.Join(said, "; "))
		}
		MarkdownLine(b, line...)
	}
}

func tableHead(b *strings.Builder, titles ...string) {
	MarkdownLine(b, titles...)
	b.WriteString("|" + strings.Repeat("---|", len(titles)) + "\n")
}

// MarkdownLine writes a line of a table.
func MarkdownLine(b *strings.Builder, cells ...string) {
	for _, c := range cells {
		b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
	}
	b.WriteString("|\n")
}
