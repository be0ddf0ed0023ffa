// Package picture decodes PNG, JPEG and WebP images, resizes them to aspect-ratio buckets of about equal area, and
// scales pixels to [−1, 1].
package picture

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/draw"
	_ "image/jpeg" // decoder
	_ "image/png"  // decoder
	"math"

	_ "golang.org/x/image/webp" // decoder
)

// Errors that decoding and resizing may wrap.
var (
	ErrPicture = errors.New("not a picture that can be read")
	ErrSize    = errors.New("wrong size")
)

// Limits for decoding, because a small file can claim any size.
const (
	maxSide   = 1 << 16
	maxPixels = 1 << 28
)

// Decode decodes a PNG, JPEG or WebP image and applies its EXIF orientation. It fails with ErrPicture, and with ErrSize
// above 2²⁸ pixels.
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

// SizeOf returns the size of an image.
func SizeOf(img image.Image) Size { return Size{img.Bounds().Dx(), img.Bounds().Dy()} }

// Cover resizes an image with [Bicubic] so that it covers s, crops the longer side equally at both ends, and returns it
// as [Signed] does. Transparent pixels become white.
func Cover(img image.Image, s Size) []float32 {
	return Signed(Bicubic.part(img, middle(img.Bounds(), s), s))
}

// Middle crops the center of an image to s, which must not be larger than the image.
func Middle(img *image.RGBA, s Size) *image.RGBA {
	from := img.Rect.Min.Add(image.Pt((img.Rect.Dx()-s.Width)/2, (img.Rect.Dy()-s.Height)/2))
	out := image.NewRGBA(image.Rect(0, 0, s.Width, s.Height))
	draw.Draw(out, out.Rect, img, from, draw.Src)
	return out
}

// Signed scales the pixels of an image to [−1, 1] and returns them as [3, Height, Width]: byte/127.5 − 1.
func Signed(img *image.RGBA) []float32 {
	mid := [3]float32{127.5, 127.5, 127.5}
	return Values(img, mid, mid)
}

// Values normalizes the pixels of an image to (byte − mean)/deviation and returns them as [3, Height, Width].
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

// middle returns the largest centered rectangle in b with the aspect ratio of s.
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
