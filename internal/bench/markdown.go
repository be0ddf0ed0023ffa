package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Markdown is the report as tables: one for each group, with a line for
// what a program did and columns for what it did it on, and one of the marks.
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
			tableLine(b, v.Name, v.Beside, fmt.Sprintf("≤ %.4g", v.Asked), fmt.Sprintf("%.3f", v.Ratio), v.word())
		}
	}
	return b.String()
}

func markdownGroup(b *strings.Builder, rows []*Row) {
	var inputs []string
	var rates, peaks, details bool // whether there are any
	for _, row := range rows {
		if !slices.Contains(inputs, row.Input) {
			inputs = append(inputs, row.Input)
		}
		rates = rates || row.Bytes > 0
		peaks = peaks || row.PeakRSS > 0
		details = details || row.cells().remark != ""
	}
	titles := []string{"program", "what"}
	for _, in := range inputs {
		titles = append(titles, in+": median ms (p10–p90)")
		if rates {
			titles = append(titles, "GB/s")
		}
		if peaks {
			titles = append(titles, "peak MB")
		}
	}
	if details {
		titles = append(titles, "")
	}
	fmt.Fprintf(b, "\n### %s\n\n", rows[0].Group)
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
				at = i // never taken: a row has all inputs of its group
			}
			c := rows[at].cells()
			if c.remark != "" && !slices.Contains(said, c.remark) {
				said = append(said, c.remark)
			}
			if c.p10 != "" {
				c.median += " (" + c.p10 + "–" + c.p90 + ")"
			}
			line = append(line, c.median)
			if rates {
				line = append(line, c.rate)
			}
			if peaks {
				line = append(line, c.peak)
			}
		}
		if details {
			line = append(line, strings.Join(said, "; "))
		}
		tableLine(b, line...)
	}
}

func tableHead(b *strings.Builder, titles ...string) {
	tableLine(b, titles...)
	b.WriteString("|" + strings.Repeat("---|", len(titles)) + "\n")
}

func tableLine(b *strings.Builder, cells ...string) {
	for _, c := range cells {
		b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
	}
	b.WriteString("|\n")
}
