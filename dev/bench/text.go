package bench

import (
	"fmt"
	"strings"
)

// Text returns the lines of tables for a terminal. Columns without figures are omitted per group.
func (r *Report) Text() [][]string {
	var lines [][]string
	for rows := range r.groups() {
		lines = append(lines, []string{rows[0].Group})
		t := columnsOf(rows)
		lines = append(lines, append([]string{"", "", "", "MEDIAN MS", "P10", "P90"}, t.choose("TOKENS/S", "GFLOP/S", "OF PEAK", "GB/S", "OF PEAK", "PEAK MB")...))
		for _, row := range rows {
			c := row.cells()
			line := append([]string{"  " + row.Program, row.Name, row.Input, c.median, c.p10, c.p90}, t.choose(c.speed, c.gflops, c.ofFlops, c.rate, c.ofBytes, c.peak)...)
			lines = append(lines, append(line, c.remark))
		}
	}
	if verdicts := r.Verdicts(); len(verdicts) > 0 {
		lines = append(lines, []string{"Marks"}, []string{"", "", "FOUND", "ASKED", "BESIDE"})
		for _, v := range verdicts {
			lines = append(lines, []string{"  " + v.word(), v.Name, fmt.Sprintf("%.3f", v.Ratio), v.asked(), v.Beside})
		}
	}
	return lines
}

// cells are the figures of a row as text.
type cells struct{ median, p10, p90, speed, gflops, ofFlops, rate, ofBytes, peak, remark string }

func (r *Row) cells() cells {
	if !r.Measured() {
		return cells{median: "–", remark: r.Failure}
	}
	f := r.Figures()
	c := cells{median: milliseconds(f.Median), remark: r.Detail}
	if f.P90 > 0 {
		c.p10, c.p90 = milliseconds(f.P10), milliseconds(f.P90)
	}
	if f.Speed > 0 {
		c.speed = fmt.Sprintf("%.4g", f.Speed)
		if f.Speed >= 1000 {
			c.speed = fmt.Sprintf("%.0f", f.Speed)
		}
	}
	if f.GFlops > 0 {
		c.gflops = fmt.Sprintf("%.1f", f.GFlops)
	}
	if f.Rate > 0 {
		c.rate = fmt.Sprintf("%.2f", f.Rate)
	}
	if f.OfFlops > 0 {
		c.ofFlops = percent(f.OfFlops)
	}
	if f.OfBytes > 0 {
		c.ofBytes = percent(f.OfBytes)
	}
	if r.PeakRSS > 0 {
		c.peak = fmt.Sprintf("%.1f", float64(r.PeakRSS)/1e6)
	}
	if r.Share > 0 {
		c.remark = strings.Trim(fmt.Sprintf("%.2f %% of the input; %s", 100*r.Share, c.remark), "; ")
	}
	return c
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

// milliseconds prints seconds with three significant digits.
func milliseconds(s float64) string {
	switch ms := s * 1e3; {
	case ms >= 100:
		return fmt.Sprintf("%.0f", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f", ms)
	case ms >= 1:
		return fmt.Sprintf("%.2f", ms)
	case ms >= 0.01:
		return fmt.Sprintf("%.3f", ms)
	default:
		return fmt.Sprintf("%.5f", ms)
	}
}
