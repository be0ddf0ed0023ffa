package main

import (
	"image"
	"image/color"
	"math"

	"github.com/lorafuse/lorafuse/internal/philox"
)

// side is the side of an image in pixels.
const side = 32

// Words of captions, such as "red star".
var (
	colours = []colour{
		{"red", [3]float64{0.85, 0.10, 0.12}}, {"orange", [3]float64{0.97, 0.55, 0.05}}, {"green", [3]float64{0.10, 0.60, 0.20}},
		{"blue", [3]float64{0.10, 0.30, 0.85}}, {"purple", [3]float64{0.50, 0.15, 0.65}}, {"pink", [3]float64{0.97, 0.50, 0.70}},
	}
	shapes = []shape{
		{"circle", func(x, y float64) float64 { return math.Hypot(x, y) - 0.9 }},
		{"square", func(x, y float64) float64 { return max(math.Abs(x), math.Abs(y)) - 0.78 }},
		{"triangle", func(x, y float64) float64 { return max(y-0.7, 0.87*math.Abs(x)-0.5*y-0.5) }},
		{"diamond", func(x, y float64) float64 { return (math.Abs(x)*1.2+math.Abs(y))*0.7 - 0.68 }},
		{"star", star},
		{"heart", heart},
		{"cross", func(x, y float64) float64 {
			return max(min(math.Abs(x), math.Abs(y))-0.3, max(math.Abs(x), math.Abs(y))-0.88)
		}},
		{"moon", func(x, y float64) float64 { return max(math.Hypot(x, y)-0.9, 0.75-math.Hypot(x-0.5, y+0.2)) }},
	}
)

type colour struct {
	name string
	rgb  [3]float64
}

// shape is a shape around the origin. distance returns the approximate signed distance of a
// point from the edge; it is negative inside.
type shape struct {
	name     string
	distance func(x, y float64) float64
}

// star returns the distance from a star with five points, using the edges between its outer
// and inner corners.
func star(x, y float64) float64 {
	const turn = 2 * math.Pi / 5
	a := math.Atan2(x, -y) // from the upper point
	a -= turn * math.Round(a/turn)
	r := math.Hypot(x, y)
	px, py := r*math.Sin(math.Abs(a)), r*math.Cos(a)
	const outer, inner = 1.0, 0.45
	ix, iy := inner*math.Sin(turn/2), inner*math.Cos(turn/2)
	dx, dy := ix, iy-outer
	return (px*-dy + (py-outer)*dx) / math.Hypot(dx, dy)
}

// heart returns the distance from two circles above a corner.
func heart(x, y float64) float64 {
	const size = 0.65
	x, y = math.Abs(x)*size, 0.58-y*size
	if x+y > 1 {
		return (math.Hypot(x-0.25, y-0.75) - math.Sqrt2/4) / size
	}
	half := 0.5 * max(x+y, 0)
	return math.Copysign(min(math.Hypot(x, y-1), math.Hypot(x-half, y-half)), x-y) / size
}

// scene holds the content of a caption, and its position and size.
type scene struct {
	colour, shape int
	x, y, size    float64 // of the center, and half of the width, in pixels
}

func (p scene) caption() string { return colours[p.colour].name + " " + shapes[p.shape].name }

// place sets a pseudorandom position and size for scene number i.
func (p scene) place(i int) scene {
	r := philox.NewStream(uint64(i), 0, 0)
	u := func(n uint64) float64 { return 2*float64(r.Uniform(n)) - 1 }
	p.x, p.y, p.size = side/2+2*u(0), side/2+2*u(1), 11+u(2)
	return p
}

// style returns the color of a point at a signed distance from the edge of the shape, in
// pixels.
type style func(distance float64, rgb [3]float64) [3]float64

// plain paints a flat shape on paper.
func plain(distance float64, rgb [3]float64) [3]float64 {
	if distance < 0 {
		return rgb
	}
	return [3]float64{0.96, 0.94, 0.90}
}

// glow paints a lamp in the dark. Its color fades with the distance.
func glow(distance float64, rgb [3]float64) [3]float64 {
	at := [3]float64{0.05, 0.05, 0.15}
	light := math.Exp(-max(distance, 0) / 2.5)
	for i, c := range rgb {
		at[i] += light * (0.15 + 0.75*c)
		if distance < 0 {
			at[i] = min(1, 0.25+0.85*c)
		}
	}
	return at
}

// fine is the number of sampled points per pixel along each side.
const fine = 3

// paint renders the scene.
func (p scene) paint(s style) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, side, side))
	for py := range side {
		for px := range side {
			var sum [3]float64
			for k := range fine * fine {
				x := (float64(px) + (float64(k%fine)+0.5)/fine - p.x) / p.size
				y := (float64(py) + (float64(k/fine)+0.5)/fine - p.y) / p.size
				at := s(shapes[p.shape].distance(x, y)*p.size, colours[p.colour].rgb)
				for i := range sum {
					sum[i] += at[i] / (fine * fine)
				}
			}
			m.SetNRGBA(px, py, color.NRGBA{level(sum[0]), level(sum[1]), level(sum[2]), 255})
		}
	}
	return m
}

func level(x float64) uint8 { return uint8(math.Round(255 * min(max(x, 0), 1))) }
