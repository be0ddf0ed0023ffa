//go:build !noplot

package events

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

var (
	// ErrNoLoss is the error for records without any loss to plot.
	ErrNoLoss = errors.New("no loss among the records")
	// ErrFormat is the error for an image format other than SVG and PNG.
	ErrFormat = errors.New("unknown image format")
)

// PlotLoss draws the training loss, raw and smoothed, and the evaluation loss
// over the steps, and writes it to path in the format of its extension, .svg
// or .png. The same records and title give the same bytes.
func PlotLoss(path, title string, records []Record) error {
	image, err := RenderLoss(strings.TrimPrefix(filepath.Ext(path), "."), title, records)
	if err != nil {
		return fmt.Errorf("plot %s: %w", path, err)
	}
	return fsatomic.WriteFile(path, image)
}

// The plot is 16 by 9 cm times this, at a resolution for screens of today.
const (
	plotWidth  = 18 * vg.Centimeter
	plotHeight = 10 * vg.Centimeter
	plotDPI    = 144

	// most points that a line of 18 cm can show
	mostPoints = 1500
	// points that the smoothed line averages, as a part of all
	smoothPart = 20
)

// Blue and vermilion are told apart by all kinds of colour vision (Okabe, Ito).
var (
	rawColor   = color.NRGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0x90}
	trainColor = color.NRGBA{R: 0x00, G: 0x5a, B: 0x96, A: 0xff}
	evalColor  = color.NRGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}
	gridColor  = color.NRGBA{R: 0xe6, G: 0xe6, B: 0xe6, A: 0xff}
	inkColor   = color.NRGBA{R: 0x40, G: 0x40, B: 0x40, A: 0xff}
)

// RenderLoss returns the plot that PlotLoss writes; format is "svg" or "png".
func RenderLoss(format, title string, records []Record) ([]byte, error) {
	p, err := lossPlot(title, records)
	if err != nil {
		return nil, err
	}
	var image bytes.Buffer
	switch format {
	case "svg":
		c := vgsvg.New(plotWidth, plotHeight)
		p.Draw(framed(draw.New(c)))
		if _, err := c.WriteTo(&image); err != nil {
			return nil, err
		}
		// The font may be missing where the file is looked at.
		return bytes.ReplaceAll(image.Bytes(), []byte("font-family:Liberation Sans;"),
			[]byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")), nil
	case "png":
		c := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(plotWidth, plotHeight), vgimg.UseDPI(plotDPI))}
		p.Draw(framed(draw.New(c)))
		if _, err := c.WriteTo(&image); err != nil {
			return nil, err
		}
		return image.Bytes(), nil
	}
	return nil, fmt.Errorf("%w: %q, expected svg or png", ErrFormat, format)
}

func lossPlot(title string, records []Record) (*plot.Plot, error) {
	train, eval := curve(records, Loss), curve(records, EvalLoss)
	if len(train)+len(eval) == 0 {
		return nil, ErrNoLoss
	}
	p := plot.New()
	style(p)
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = "step", "loss"
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{most: 10, whole: true}, ticks{most: 7}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	p.Add(grid)

	if len(train) > 0 {
		raw, err := line(thin(train, mostPoints), rawColor, vg.Points(0.8))
		if err != nil {
			return nil, err
		}
		mean, err := line(thin(smooth(train, max(1, float64(len(train))/smoothPart)), mostPoints), trainColor, vg.Points(1.8))
		if err != nil {
			return nil, err
		}
		p.Add(raw, mean)
		p.Legend.Add("train", raw)
		p.Legend.Add("train, smoothed", mean)
	}
	if len(eval) > 0 {
		l, err := line(eval, evalColor, vg.Points(1.4))
		if err != nil {
			return nil, err
		}
		dots, err := plotter.NewScatter(xys(eval))
		if err != nil {
			return nil, err
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: evalColor, Radius: vg.Points(2.4), Shape: draw.CircleGlyph{}}
		p.Add(l, dots)
		p.Legend.Add("eval", l, dots)
	}
	margins(p)
	return p, nil
}

// framed returns the canvas without a margin on all sides.
func framed(c draw.Canvas) draw.Canvas {
	const margin = 8
	return draw.Crop(c, margin, -margin, margin, -margin)
}

// style sets the fonts and colours.
func style(p *plot.Plot) {
	sans := func(size vg.Length) font.Font {
		return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	}
	set := func(s *text.Style, size vg.Length) {
		s.Font, s.Color = sans(size), inkColor
	}
	set(&p.Title.TextStyle, 13)
	p.Title.Padding = vg.Points(8)
	set(&p.Legend.TextStyle, 10)
	p.Legend.Top = true
	p.Legend.XOffs, p.Legend.YOffs = -vg.Points(6), -vg.Points(4)
	p.Legend.Padding = vg.Points(3)
	p.Legend.ThumbnailWidth = vg.Points(22)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		set(&a.Label.TextStyle, 11)
		set(&a.Tick.Label, 10)
		a.Label.Padding = vg.Points(4)
		a.LineStyle.Color, a.LineStyle.Width = inkColor, vg.Points(0.6)
		a.Tick.LineStyle.Color, a.Tick.LineStyle.Width = inkColor, vg.Points(0.6)
		a.Tick.Length = vg.Points(4)
	}
	p.X.Tick.Label.YAlign = draw.YTop
	p.X.Tick.Label.XAlign = draw.XCenter
	p.Y.Tick.Label.XAlign = draw.XRight
	p.Y.Tick.Label.YAlign = draw.YCenter
}

// margins extends the axis ranges around the curves, also if all points are equal.
func margins(p *plot.Plot) {
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		// Nor may the width drown in the rounding of the values.
		size := max(math.Abs(a.Min), math.Abs(a.Max))
		if a.Max-a.Min <= 1e-6*size || size == 0 {
			a.Min, a.Max = a.Min-max(size, 1)/10, a.Max+max(size, 1)/10
		}
		air := (a.Max - a.Min) * 0.03
		a.Min, a.Max = a.Min-air, a.Max+air
		a.Padding = 0
	}
	if p.X.Min < 0 {
		p.X.Min = 0
	}
}

func line(c []point, ink color.Color, width vg.Length) (*plotter.Line, error) {
	l, err := plotter.NewLine(xys(c))
	if err != nil {
		return nil, err
	}
	l.LineStyle.Color, l.LineStyle.Width = ink, width
	return l, nil
}

func xys(c []point) plotter.XYs {
	out := make(plotter.XYs, len(c))
	for i, p := range c {
		out[i].X, out[i].Y = p.x, p.y
	}
	return out
}
