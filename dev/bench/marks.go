package bench

import "fmt"

// Mark is a target for a row. Its kind is that of the first of these fields that is set: Beside, FlopPeak, BytePeak.
type Mark struct {
	Name   string   // the requirement
	Row    string   // ID of the row that must meet the target
	Beside []string // IDs of rows; the one with the least counts
	Factor float64  // the row's maximum, as a multiple of the smallest row in Beside

	// FlopPeak is the minimum share of the peak of matrix multiplication, BytePeak of the bandwidth.
	FlopPeak, BytePeak float64
}

// Verdict is a target with its measured result.
type Verdict struct {
	Name   string  `json:"name"`
	Row    string  `json:"row"`
	Beside string  `json:"beside"`
	Asked  float64 `json:"asked"` // the ratio must be this or less, or this or more
	Ratio  float64 `json:"ratio"`
	Least  bool    `json:"least,omitempty"` // the ratio must be this or more
	Met    bool    `json:"met"`
}

func (v *Verdict) word() string {
	if v.Met {
		return "met"
	}
	return "MISSED"
}

// asked formats the target.
func (v *Verdict) asked() string {
	sign := "≤"
	if v.Least {
		sign = "≥"
	}
	return fmt.Sprintf("%s %.4g", sign, v.Asked)
}

// Verdicts checks the rows against the targets. It skips targets whose rows were not measured. For a report read from
// a file, it returns the stored verdicts.
func (r *Report) Verdicts() []Verdict {
	if r.Marks == nil {
		return r.verdicts
	}
	var verdicts []Verdict
	for i := range r.Marks {
		m := &r.Marks[i]
		row := r.measured(m.Row)
		if row == nil {
			continue
		}
		v := r.judge(m, row)
		if v.Ratio > 0 {
			v.Name, v.Row = m.Name, row.ID()
			v.Met = v.Ratio <= v.Asked && !v.Least || v.Ratio >= v.Asked && v.Least
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// judge computes the ratio, or 0 if there is nothing to compare.
func (r *Report) judge(m *Mark, row *Row) Verdict {
	f := row.Figures()
	switch {
	case m.Beside != nil:
		if best := r.fastest(m.Beside); best != nil {
			return Verdict{Beside: best.Program + ": " + best.Name, Asked: m.Factor, Ratio: f.Median / best.Figures().Median}
		}
		return Verdict{}
	case m.FlopPeak > 0:
		return Verdict{Beside: "peak of products", Asked: m.FlopPeak, Ratio: f.OfFlops, Least: true}
	default:
		return Verdict{Beside: "peak of the memory", Asked: m.BytePeak, Ratio: f.OfBytes, Least: true}
	}
}

func (r *Report) measured(id string) *Row {
	for _, row := range r.Rows {
		if row.ID() == id && row.Measured() {
			return row
		}
	}
	return nil
}

// fastest returns the measured row with the smallest median.
func (r *Report) fastest(ids []string) (best *Row) {
	for _, id := range ids {
		if row := r.measured(id); row != nil && (best == nil || row.Figures().Median < best.Figures().Median) {
			best = row
		}
	}
	return best
}
