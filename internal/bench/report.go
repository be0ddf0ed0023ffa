package bench

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Report is one run of a benchmark.
type Report struct {
	Title       string
	Environment Environment
	Rows        []*Row
	Marks       []Mark
}

// Mark is a bar that a row is held against.
type Mark struct {
	Name   string   // what is asked
	Row    string   // ID of the row that is held against it
	Beside []string // IDs of rows; the fastest one counts
	Factor float64  // the most that the row may take, as a part of the fastest beside it

	// Without rows beside it, a mark is about something else: where Memory is
	// set, the most that the process of the row may hold, as a multiple of that
	// many bytes; else the row's Share, which must not be more than Factor.
	Memory int64
}

// Verdict is a mark with what was found.
type Verdict struct {
	Name   string  `json:"name"`
	Row    string  `json:"row"`
	Beside string  `json:"beside"`
	Asked  float64 `json:"asked"` // the ratio must be this or less
	Ratio  float64 `json:"ratio"`
	Met    bool    `json:"met"`
}

func (v *Verdict) word() string {
	if v.Met {
		return "met"
	}
	return "MISSED"
}

// Verdicts holds the rows against the marks. A mark whose rows were not
// measured is left out.
func (r *Report) Verdicts() []Verdict {
	var verdicts []Verdict
	for _, m := range r.Marks {
		row := r.measured(m.Row)
		if row == nil {
			continue
		}
		v := Verdict{Name: m.Name, Row: row.ID(), Asked: m.Factor}
		switch {
		case m.Beside != nil:
			if best := r.fastest(m.Beside); best != nil {
				v.Beside, v.Ratio = best.Program+": "+best.Name, row.Figures().Median/best.Figures().Median
			}
		case m.Memory > 0:
			v.Beside, v.Ratio = "memory of the data", float64(row.PeakRSS)/float64(m.Memory)
		default:
			v.Beside, v.Ratio = "share of the input", row.Share
		}
		if v.Ratio > 0 {
			v.Met = v.Ratio <= v.Asked
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

func (r *Report) measured(id string) *Row {
	for _, row := range r.Rows {
		if row.ID() == id && len(row.Seconds) > 0 {
			return row
		}
	}
	return nil
}

func (r *Report) fastest(ids []string) (best *Row) {
	for _, id := range ids {
		if row := r.measured(id); row != nil && (best == nil || row.Figures().Median < best.Figures().Median) {
			best = row
		}
	}
	return best
}

// MarshalJSON gives rows with their figures and marks with their verdicts.
func (r *Report) MarshalJSON() ([]byte, error) {
	rows := append([]*Row{}, r.Rows...) // [], not null
	return json.Marshal(struct {
		Title       string      `json:"title"`
		Environment Environment `json:"environment"`
		Rows        []*Row      `json:"rows"`
		Marks       []Verdict   `json:"marks"`
	}{r.Title, r.Environment, rows, append([]Verdict{}, r.Verdicts()...)})
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

// Text gives the lines of a table for a terminal.
func (r *Report) Text() [][]string {
	var lines [][]string
	for rows := range r.groups() {
		lines = append(lines, []string{rows[0].Group}, []string{"", "", "", "MEDIAN MS", "P10", "P90", "GB/S", "PEAK MB"})
		for _, row := range rows {
			c := row.cells()
			lines = append(lines, []string{"  " + row.Program, row.Name, row.Input, c.median, c.p10, c.p90, c.rate, c.peak, c.remark})
		}
	}
	if verdicts := r.Verdicts(); len(verdicts) > 0 {
		lines = append(lines, []string{"Marks"}, []string{"", "", "FOUND", "ASKED", "BESIDE"})
		for _, v := range verdicts {
			lines = append(lines, []string{"  " + v.word(), v.Name, fmt.Sprintf("%.3f", v.Ratio), fmt.Sprintf("≤ %.4g", v.Asked), v.Beside})
		}
	}
	return lines
}

// cells are the figures of a row as text.
type cells struct{ median, p10, p90, rate, peak, remark string }

func (r *Row) cells() cells {
	if len(r.Seconds) == 0 {
		return cells{median: "–", remark: r.Failure}
	}
	f := r.Figures()
	c := cells{median: milliseconds(f.Median), p10: milliseconds(f.P10), p90: milliseconds(f.P90), remark: r.Detail}
	if f.Rate > 0 {
		c.rate = fmt.Sprintf("%.2f", f.Rate)
	}
	if r.PeakRSS > 0 {
		c.peak = fmt.Sprintf("%.1f", float64(r.PeakRSS)/1e6)
	}
	if r.Share > 0 {
		c.remark = strings.Trim(fmt.Sprintf("%.2f %% of the input; %s", 100*r.Share, c.remark), "; ")
	}
	return c
}

// milliseconds prints seconds with three significant digits.
func milliseconds(s float64) string {
	switch ms := s * 1e3; {
	case ms >= 100:
		return fmt.Sprintf("%.0f", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f", ms)
	case ms >= 1:
		return fmt.Sprintf("%.2f", ms)
	default:
		return fmt.Sprintf("%.3f", ms)
	}
}
