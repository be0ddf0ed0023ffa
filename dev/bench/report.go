package bench

import (
	"encoding/json"
	"iter"
	"slices"
)

// Report is one run of a benchmark.
type Report struct {
	Title       string
	Command     string // that measured it, without machine-specific parts
	Note        string // remarks on the figures
	Environment Environment
	Rows        []*Row
	Marks       []Mark

	verdicts []Verdict // the stored verdicts of a report read from a file, which lacks the targets
}

// MarshalJSON encodes rows with their figures and targets with their verdicts.
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

// groups iterates over the groups of rows.
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
