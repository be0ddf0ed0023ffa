package events

import (
	"errors"
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// ErrNoLoss is the error for records without any loss to plot.
var ErrNoLoss = errors.New("no loss among the records")

// PlotLoss draws the training loss, raw and smoothed, and the evaluation loss over the steps, and writes it to path as
// SVG. The same records and title give the same bytes.
func PlotLoss(path, title string, records []Record) error {
	image, err := renderLoss(title, records)
	if err != nil {
		return fmt.Errorf("plot %s: %w", path, err)
	}
	return fsatomic.WriteFile(path, image)
}

const (
	// The plot in pixels, and the margins around its axes.
	plotWidth, plotHeight               = 720, 400
	plotLeft, plotRight, plotTop, plotY = 72, 16, 40, 48

	mostPoints = 1500 // points that a line of this width can show
	smoothPart = 20   // points that the smoothed line averages, as a part of all
)

// Blue and vermilion are told apart by all kinds of colour vision (Okabe, Ito).
const (
	rawInk   = "#56b4e9"
	trainInk = "#005a96"
	evalInk  = "#d55e00"
)

// renderLoss returns the plot that PlotLoss writes.
func renderLoss(title string, records []Record) ([]byte, error) {
	train, eval := curve(records, Loss), curve(records, EvalLoss)
	if len(train)+len(eval) == 0 {
		return nil, ErrNoLoss
	}
	var x, y axis
	for i, p := range append(train[:len(train):len(train)], eval...) {
		x.include(p.x, i == 0)
		y.include(p.y, i == 0)
	}
	x.widen()
	y.widen()
	x.low = max(x.low, 0)
	x.from, x.to = plotLeft, plotWidth-plotRight
	y.from, y.to = plotHeight-plotY, plotTop

	b := &strings.Builder{}
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="'Liberation Sans',Arial,Helvetica,sans-serif" font-size="12" fill="#404040">
<rect width="100%%" height="100%%" fill="#fff"/>
`, plotWidth, plotHeight)
	for _, t := range x.ticks(10, true) {
		fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1f" stroke="#e6e6e6"/>`, x.at(t.value), y.from+4, y.to)
		label(b, x.at(t.value), y.from+18, "middle", t.label)
	}
	for _, t := range y.ticks(7, false) {
		fmt.Fprintf(b, `<path d="M%.1f %.1fH%.1f" stroke="#e6e6e6"/>`, x.from-4, y.at(t.value), x.to)
		label(b, x.from-8, y.at(t.value)+4, "end", t.label)
	}
	fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1fH%.1f" fill="none" stroke="#404040"/>`+"\n", x.from, y.to, y.from, x.to)
	label(b, plotWidth/2, 24, "middle", title)
	label(b, (x.from+x.to)/2, plotHeight-8, "middle", "step")
	label(b, plotLeft-8, plotTop-8, "end", "loss")

	legend := y.to + 8
	line := func(c []point, name, ink string, width float64) {
		fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="%g" d="`, ink, width)
		for i, p := range c {
			b.WriteByte("ML"[min(i, 1)])
			fmt.Fprintf(b, "%.1f %.1f", x.at(p.x), y.at(p.y))
		}
		fmt.Fprintf(b, `M%.1f %.1fh22"/>`, x.to-28, legend)
		label(b, x.to-34, legend+4, "end", name)
		legend += 18
	}
	if len(train) > 0 {
		line(thin(train, mostPoints), "train", rawInk, 1)
		line(thin(smooth(train, max(1, float64(len(train))/smoothPart)), mostPoints), "train, smoothed", trainInk, 2.5)
	}
	if len(eval) > 0 {
		line(eval, "eval", evalInk, 2)
		for _, p := range eval {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x.at(p.x), y.at(p.y), evalInk)
		}
	}
	b.WriteString("\n</svg>\n")
	return []byte(b.String()), nil
}

func label(b *strings.Builder, x, y float64, anchor, text string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(text))
}

// axis maps the values low to high to the pixels from to to.
type axis struct{ low, high, from, to float64 }

func (a *axis) include(v float64, first bool) {
	if first {
		a.low, a.high = v, v
	}
	a.low, a.high = min(a.low, v), max(a.high, v)
}

// widen extends the range around the curves, also if all points are equal.
func (a *axis) widen() {
	// The width must not drown in the rounding of the values.
	size := max(math.Abs(a.low), math.Abs(a.high))
	if a.high-a.low <= 1e-6*size || size == 0 {
		a.low, a.high = a.low-max(size, 1)/10, a.high+max(size, 1)/10
	}
	air := (a.high - a.low) * 0.03
	a.low, a.high = a.low-air, a.high+air
}

func (a *axis) at(v float64) float64 { return a.from + (v-a.low)/(a.high-a.low)*(a.to-a.from) }

type tick struct {
	value float64
	label string
}

// ticks returns at most that many marks at multiples of 1, 2 or 5 times a power of ten; whole restricts them to
// integers.
func (a *axis) ticks(most int, whole bool) (out []tick) {
	width := a.high - a.low
	power := int(math.Floor(math.Log10(width))) - 3
	if whole {
		power = max(power, 0)
	}
	for ; ; power++ {
		for _, digit := range []float64{1, 2, 5} {
			step := digit * math.Pow10(power)
			if width/step > float64(most) {
				continue
			}
			for k := math.Ceil(a.low / step); k*step <= a.high; k++ {
				out = append(out, tick{k * step, strconv.FormatFloat(k*step+0, 'f', max(0, -power), 64)})
			}
			return out
		}
	}
}
