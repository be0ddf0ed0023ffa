package bench

import (
	"fmt"
	"strings"
)

// Text returns the lines of tables for a terminal.
func (r *Report) Text() [][]string {
	var lines [][]string
	for _, t := range r.tables() {
		head := make([]string, len(t.head))
		for i := range head {
			head[i] = strings.ToUpper(t.head[i])
		}
		lines = append(lines, []string{t.title})
		for _, line := range append([][]string{head}, t.lines...) {
			lines = append(lines, append([]string{"  " + line[0]}, line[1:]...))
		}
	}
	return lines
}

// table is a table of a report.
type table struct {
	title string
	head  []string
	lines [][]string
}

// tables returns a table for each group of rows, without columns that have no figures, and one of the targets.
func (r *Report) tables() (tables []table) {
	for rows := range r.groups() {
		t := table{title: rows[0].Group}
		columns := [...]string{"program", "what", "on", "median ms", "p10", "p90", "tokens/s", "GFLOP/s", "of peak", "GB/s", "of peak", "peak MB", ""}
		var used [len(columns)]bool
		var all [][len(columns)]string
		for _, row := range rows {
			c := row.cells()
			all = append(all, [...]string{row.Program, row.Name, row.Input, c.median, c.p10, c.p90, c.speed, c.gflops, c.ofFlops, c.rate, c.ofBytes, c.peak, c.remark})
			for i, cell := range all[len(all)-1] {
				used[i] = used[i] || cell != ""
			}
		}
		choose := func(cells [len(columns)]string) (line []string) {
			for i, cell := range cells {
				if used[i] {
					line = append(line, cell)
				}
			}
			return line
		}
		t.head = choose(columns)
		for _, cells := range all {
			t.lines = append(t.lines, choose(cells))
		}
		tables = append(tables, t)
	}
	if verdicts := r.Verdicts(); len(verdicts) > 0 {
		t := table{title: "Marks", head: []string{"", "what", "found", "asked", "beside"}}
		for _, v := range verdicts {
			t.lines = append(t.lines, []string{v.word(), v.Name, fmt.Sprintf("%.3f", v.Ratio), v.asked(), v.Beside})
		}
		tables = append(tables, t)
	}
	return tables
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
