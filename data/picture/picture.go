// Package picture reads pictures, and brings them to the sizes and numbers that models
// take: PNG, JPEG and WebP of any shape, to one of a few sizes of about the same area, as
// numbers of −1 to 1.
package picture

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/draw"
	_ "image/jpeg" // is read
	_ "image/png"  // is read
	"math"

	_ "golang.org/x/image/webp" // is read
)

// Errors that reading pictures may wrap.
var (
	ErrPicture = errors.New("not a picture that can be read")
	ErrSize    = errors.New("wrong size")
)

// Bounds of what is decoded: a file of a few bytes can claim any size.
const (
	maxSide   = 1 << 16
	maxPixels = 1 << 28
)

// Decode reads a PNG, a JPEG or a WebP, turned as its EXIF data says. Errors:
// ErrPicture, and ErrSize for more than 2²⁸ pixels.
func Decode(data []byte) (image.Image, error) {
	config, format, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("picture: %w: %w", ErrPicture, err)
	}
	if config.Width > maxSide || config.Height > maxSide || config.Width*config.Height > maxPixels {
		return nil, fmt.Errorf("picture: %w: %v, expected %d pixels at most", ErrSize, Size{config.Width, config.Height}, maxPixels)
	}
	img, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("picture: %w: %s: %w", ErrPicture, format, err)
	}
	return turned(coloured(img, format), orientation(format, data)), nil
}

// SizeOf is the size of a picture.
func SizeOf(img image.Image) Size { return Size{img.Bounds().Dx(), img.Bounds().Dy()} }

// Cover is the picture at a size, as [Signed] numbers: scaled by [Bicubic] until it covers
// the size, and cut at both ends of the longer side alike. What is transparent is white.
func Cover(img image.Image, s Size) []float32 {
	return Signed(Bicubic.part(img, middle(img.Bounds(), s), s))
}

// Middle is the middle of a picture, of a size that it has room for.
func Middle(img *image.RGBA, s Size) *image.RGBA {
	from := img.Rect.Min.Add(image.Pt((img.Rect.Dx()-s.Width)/2, (img.Rect.Dy()-s.Height)/2))
	out := image.NewRGBA(image.Rect(0, 0, s.Width, s.Height))
	draw.Draw(out, out.Rect, img, from, draw.Src)
	return out
}

// Signed are the bytes of a picture as numbers of −1 to 1, [3, Height, Width]: a byte by
// 127.5, less 1.
func Signed(img *image.RGBA) []float32 {
	mid := [3]float32{127.5, 127.5, 127.5}
	return Values(img, mid, mid)
}

// Values are the bytes of a picture less a mean, by a deviation: [3, Height, Width].
func Values(img *image.RGBA, mean, deviation [3]float32) []float32 {
	n := img.Rect.Dx() * img.Rect.Dy()
	out := make([]float32, 3*n)
	for i := range n {
		for c := range 3 {
			out[c*n+i] = (float32(img.Pix[4*i+c]) - mean[c]) / deviation[c]
		}
	}
	return out
}

// middle is the middle of a picture that has the shape of s.
func middle(b image.Rectangle, s Size) image.Rectangle {
	w, h := b.Dx(), b.Dy()
	if w*s.Height > h*s.Width {
		w = max(1, int(math.Round(float64(h)*float64(s.Width)/float64(s.Height))))
	} else {
		h = max(1, int(math.Round(float64(w)*float64(s.Height)/float64(s.Width))))
	}
	x, y := b.Min.X+(b.Dx()-w)/2, b.Min.Y+(b.Dy()-h)/2
	return image.Rect(x, y, x+w, y+h)
}
