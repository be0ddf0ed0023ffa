package picture

import (
	"image"
	"image/color"
	"image/draw"
	"math"
)

// Filter is a resampling filter: a kernel that is widened when images are scaled down.
type Filter struct {
	support float64 // half width of the kernel
	at      func(x float64) float64
}

// Resampling filters, bit for bit as in Pillow: BICUBIC, with parameter −1/2, and LANCZOS.
var (
	Bicubic = &Filter{2, func(x float64) float64 {
		const a = -0.5
		switch x = math.Abs(x); {
		case x < 1:
			return float64((float64((a+2)*x)-(a+3))*x)*x + 1
		case x < 2:
			return (float64((float64((x-5)*x)+8)*x) - 4) * a
		}
		return 0
	}}
	Lanczos = &Filter{3, func(x float64) float64 {
		if x < -3 || x >= 3 {
			return 0
		}
		return sinc(x) * sinc(x/3)
	}}
)

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// Scale resizes the whole image to s, ignoring its aspect ratio. Transparent pixels become white.
func (f *Filter) Scale(img image.Image, s Size) *image.RGBA { return f.part(img, img.Bounds(), s) }

// part resizes a rectangle of an image: first the rows, then the columns of the result, rounded to bytes in between.
func (f *Filter) part(img image.Image, from image.Rectangle, s Size) *image.RGBA {
	src := image.NewRGBA(image.Rectangle{Max: from.Size()})
	draw.Draw(src, src.Rect, image.NewUniform(color.White), image.Point{}, draw.Src)
	draw.Draw(src, src.Rect, img, from.Min, draw.Over)
	if s.Width != from.Dx() {
		dst := image.NewRGBA(image.Rect(0, 0, s.Width, from.Dy()))
		w := f.weights(from.Dx(), s.Width)
		for y := range from.Dy() {
			scale(dst.Pix[y*dst.Stride:], src.Pix[y*src.Stride:], 4, w)
		}
		src = dst
	}
	if s.Height != from.Dy() {
		dst := image.NewRGBA(image.Rect(0, 0, s.Width, s.Height))
		w := f.weights(from.Dy(), s.Height)
		for x := range s.Width {
			scale(dst.Pix[4*x:], src.Pix[4*x:], src.Stride, w)
		}
		src = dst
	}
	return src
}

// weight lists the contributions to a result pixel: a part, in units of 2^-fraction, of each pixel from first on.
type weight struct {
	first int
	parts []int32
}

const fraction = 22 // sums of bytes fit into signed 32 bits

// weights returns the weights for scaling n pixels to m.
func (f *Filter) weights(n, m int) []weight {
	step := float64(n) / float64(m)
	wide := max(1, step)
	out := make([]weight, m)
	curve := make([]float64, 0, int(2*f.support*wide)+3)
	for i := range out {
		center := (float64(i) + 0.5) * step
		first := max(0, int(center-f.support*wide+0.5))
		last := min(n, int(center+f.support*wide+0.5))
		sum := 0.0
		curve = curve[:0]
		for x := first; x < last; x++ {
			w := f.at((float64(x) - center + 0.5) * (1 / wide))
			curve = append(curve, w)
			sum += w
		}
		out[i] = weight{first, make([]int32, len(curve))}
		for j, w := range curve {
			if sum != 0 {
				w /= sum
			}
			out[i].parts[j] = int32(math.Round(w * (1 << fraction)))
		}
	}
	return out
}

// scale computes a line of pixels from another. Neighbouring pixels are apart bytes apart in both.
func scale(dst, src []byte, apart int, weights []weight) {
	for i, w := range weights {
		r, g, b := int32(1<<(fraction-1)), int32(1<<(fraction-1)), int32(1<<(fraction-1))
		at := w.first * apart
		for _, k := range w.parts {
			p := src[at : at+3 : at+3]
			r += k * int32(p[0])
			g += k * int32(p[1])
			b += k * int32(p[2])
			at += apart
		}
		p := dst[i*apart : i*apart+4 : i*apart+4]
		p[0], p[1], p[2], p[3] = level(r), level(g), level(b), 255
	}
}

// level converts a sum to a byte.
func level(sum int32) byte { return byte(max(0, min(255, sum>>fraction))) }
