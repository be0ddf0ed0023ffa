package diffusion

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"math"
	"os"

	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
)

// Image converts a decoded picture to an image. It maps [−1, 1] to 0 … 255 and clamps values
// outside.
func Image(p vae.Picture) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, p.Width, p.Height))
	n := p.Width * p.Height
	for i := range n {
		for c := range 3 {
			m.Pix[4*i+c] = level(p.Values[min(c, p.Channels-1)*n+i])
		}
		m.Pix[4*i+3] = 255
		if p.Channels == 4 {
			m.Pix[4*i+3] = level(p.Values[3*n+i])
		}
	}
	return m
}

// ReadImage reads the image at path. Errors: I/O errors and errors of picture.Decode.
func ReadImage(path string) (image.Image, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("diffusion: %w", err)
	}
	m, err := picture.Decode(raw)
	if err != nil {
		return nil, fmt.Errorf("diffusion: %s: %w", path, err)
	}
	return m, nil
}

// level returns round(255·(x/2 + 1/2)), rounding half to even like NumPy.
func level(x float32) uint8 {
	return uint8(math.RoundToEven(float64(255 * min(max(x/2+0.5, 0), 1))))
}

// gap is the number of pixels between the images of a grid.
const gap = 4

// Grid arranges images in rows on a white background. Each column is as wide as its widest
// image, each row as high as its highest.
func Grid(rows [][]image.Image) *image.NRGBA {
	var widths, heights []int
	for y, row := range rows {
		heights = append(heights, 0)
		for x, m := range row {
			if x == len(widths) {
				widths = append(widths, 0)
			}
			size := m.Bounds().Size()
			widths[x], heights[y] = max(widths[x], size.X), max(heights[y], size.Y)
		}
	}
	grid := image.NewNRGBA(image.Rect(0, 0, total(widths), total(heights)))
	draw.Draw(grid, grid.Rect, image.NewUniform(color.White), image.Point{}, draw.Src)
	top := 0
	for y, row := range rows {
		left := 0
		for x, m := range row {
			at := image.Rectangle{Max: m.Bounds().Size()}.Add(image.Pt(left, top))
			draw.Draw(grid, at, m, m.Bounds().Min, draw.Over)
			left += widths[x] + gap
		}
		top += heights[y] + gap
	}
	return grid
}

func total(sizes []int) int {
	n := gap * (len(sizes) - 1)
	for _, s := range sizes {
		n += s
	}
	return max(n, 0)
}
