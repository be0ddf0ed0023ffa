package bench

import (
	"fmt"
	"strings"
)

// Markdown formats the report as tables: one per group, and one of the targets.
func (r *Report) Markdown() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s\n", r.Environment)
	for _, t := range r.tables() {
		fmt.Fprintf(b, "\n### %s\n\n", t.title)
		MarkdownLine(b, t.head...)
		b.WriteString("|" + strings.Repeat("---|", len(t.head)) + "\n")
		for _, line := range t.lines {
			MarkdownLine(b, line...)
		}
	}
	return b.String()
}

// MarkdownLine writes a line of a table.
func MarkdownLine(b *strings.Builder, cells ...string) {
	for _, c := range cells {
		b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
	}
	b.WriteString("|\n")
}
