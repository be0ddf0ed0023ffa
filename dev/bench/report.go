package bench

import (
	"encoding/json"
	"iter"
	"slices"
)

// Report is one run of a benchmark.
type Report struct {
	Title       string
	Command     string // that measured it, without what belongs to one machine
	Note        string // what else is to be known of the figures
	Environment Environment
	Rows        []*Row
	Marks       []Mark

	verdicts []Verdict // as they were read, where the marks are gone
}

// MarshalJSON gives rows with their figures and marks with their verdicts.
func (r *Report) MarshalJSON() ([]byte, error) {
	rows := append([]*Row{}, r.Rows...) // [], not null
	return json.Marshal(struct {
		Title       string      `json:"title"`
		Command     string      `json:"command,omitempty"`
		Note        string      `json:"note,omitempty"`
		Environment Environment `json:"environment"`
		Rows        []*Row      `json:"rows"`
		Marks       []Verdict   `json:"marks"`
	}{r.Title, r.Command, r.Note, r.Environment, rows, append([]Verdict{}, r.Verdicts()...)})
}

// groups goes through the groups of rows.
func (r *Report) groups() iter.Seq[[]*Row] {
	return func(yield func([]*Row) bool) {
		for rest := r.Rows; len(rest) > 0; {
			n := slices.IndexFunc(rest, func(row *Row) bool { return row.Group != rest[0].Group })
			if n < 0 {
				n = len(rest)
			}
			if !yield(rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}
