package bench

import "slices"

// columns selects the columns for which a group has figures.
type columns struct{ tokens, flops, ofFlops, rates, ofBytes, peaks, details bool }

func columnsOf(rows []*Row) columns {
	has := func(some func(c *cells) bool) bool {
		return slices.ContainsFunc(rows, func(r *Row) bool {
			c := r.cells()
			return some(&c)
		})
	}
	return columns{
		tokens: has(func(c *cells) bool { return c.speed != "" }),
		flops:  has(func(c *cells) bool { return c.gflops != "" }), ofFlops: has(func(c *cells) bool { return c.ofFlops != "" }),
		rates: slices.ContainsFunc(rows, func(r *Row) bool { return r.Bytes > 0 }), ofBytes: has(func(c *cells) bool { return c.ofBytes != "" }),
		peaks:   slices.ContainsFunc(rows, func(r *Row) bool { return r.PeakRSS > 0 }),
		details: has(func(c *cells) bool { return c.remark != "" }),
	}
}

// choose returns the given cells whose columns are selected.
func (t columns) choose(speed, gflops, ofFlops, rate, ofBytes, peak string) (line []string) {
	for _, c := range []struct {
		there bool
		cell  string
	}{{t.tokens, speed}, {t.flops, gflops}, {t.ofFlops, ofFlops}, {t.rates, rate}, {t.ofBytes, ofBytes}, {t.peaks, peak}} {
		if c.there {
			line = append(line, c.cell)
		}
	}
	return line
}

// titles returns the column titles of a Markdown table.
func (t columns) titles(before string) []string {
	return append([]string{before + "median ms (p10–p90)"}, t.choose("tokens/s", "GFLOP/s", "of peak", "GB/s", "of peak", "peak MB")...)
}

// figures returns the cells below the titles.
func (t columns) figures(c cells) []string {
	if c.p10 != "" {
		c.median += " (" + c.p10 + "–" + c.p90 + ")"
	}
	return append([]string{c.median}, t.choose(c.speed, c.gflops, c.ofFlops, c.rate, c.ofBytes, c.peak)...)
}
