package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// cell formats the newest figure, its comparison with other programs, and the sources. All figures are of one machine,
// newest first.
func (p *page) cell(u unit, e *entry, figures []figure) string {
	if len(figures) == 0 {
		return ""
	}
	text, source := "", ""
	at := slices.IndexFunc(figures, func(f figure) bool { return f.row.Measured() })
	if at >= 0 {
		text, source = figures[at].text(u), p.cite(figures[at].result)
	}
	for _, f := range figures {
		switch ratio := f.ratio(u, e); {
		case ratio == "":
		case at < 0:
			return ratio + " " + p.cite(f.result)
		case f.source == figures[at].source:
			return text + "; " + ratio + " " + source
		default:
			return text + " " + source + "; " + ratio + " " + p.cite(f.result)
		}
	}
	for _, f := range figures[at+1:] {
		if f.source != figures[at].source && f.row.Measured() {
			ratio := f.row.Figures().Median / figures[at].row.Figures().Median
			return fmt.Sprintf("%s %s; %s× before %s", text, source, three(ratio), p.cite(f.result))
		}
	}
	return text + " " + source
}

// text formats the figure of a row.
func (f figure) text(u unit) string {
	if !f.row.Measured() {
		return ""
	}
	x := f.row.Figures()
	var text string
	share := x.OfFlops
	switch u {
	case tokens:
		text = three(x.Speed)
		if share == 0 {
			share = x.OfBytes
		}
	case operations:
		text = three(x.GFlops)
	case bytes:
		text, share = three(x.Rate)+" GB/s", x.OfBytes
	case seconds:
		text, share = three(x.Median)+" s", 0
	default:
		text, share = three(1e3*x.Median)+" ms", 0
	}
	if share > 0 {
		text += fmt.Sprintf(" (%.0f %%)", 100*share)
	}
	if u == tokens && f.row.PeakRSS > 0 {
		text += fmt.Sprintf(", %.0f MB", float64(f.row.PeakRSS)/1e6)
	}
	return text
}

// ratio compares the row with its fastest competitor; it is empty without competitors.
func (f figure) ratio(u unit, e *entry) string {
	var best *bench.Row
	for _, other := range e.beside {
		row := f.byID[f.row.Group+": "+other+", "+f.row.Input]
		if row != nil && row.Measured() && (best == nil || row.Figures().Median < best.Figures().Median) {
			best = row
		}
	}
	if best == nil || !f.row.Measured() {
		v, ok := f.verdict(e)
		if !ok {
			return ""
		}
		return said(e, v.Ratio, v.Beside)
	}
	text := said(e, f.row.Figures().Median/best.Figures().Median, best.Program+": "+best.Name)
	if u == tokens && f.row.PeakRSS > 0 && best.PeakRSS > 0 {
		text += fmt.Sprintf(", %.0f %% of its memory", 100*float64(f.row.PeakRSS)/float64(best.PeakRSS))
	}
	return text
}

// verdict finds the comparison of a row without own times: its time relative to another row, as a mark of the run
// records it.
func (f figure) verdict(e *entry) (*bench.Verdict, bool) {
	if f.row.Measured() {
		return nil, false
	}
	verdicts := f.Verdicts()
	i := slices.IndexFunc(verdicts, func(v bench.Verdict) bool {
		return v.Row == f.row.ID() && v.Ratio > 0 && slices.Contains(e.beside, v.Beside)
	})
	if i < 0 {
		return nil, false
	}
	return &verdicts[i], true
}

// said describes a row's time relative to another.
func said(e *entry, ratio float64, other string) string {
	program, _, _ := strings.Cut(other, ":")
	for _, name := range []string{other, program} {
		if c := called[name]; c != "" {
			program = c
			break
		}
	}
	if e.cost {
		return three(ratio) + "× the time of " + program
	}
	return three(1/ratio) + "× " + program
}

// three prints three significant digits, and all those before the point.
func three(x float64) string {
	switch {
	case x >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 9.995:
		return fmt.Sprintf("%.1f", x)
	case x >= 0.9995:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
