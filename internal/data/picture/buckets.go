package picture

import (
	"fmt"
	"math"
)

// Size is the size of an image, in pixels.
type Size struct{ Width, Height int }

// String returns the size as text, for example 1344×768.
func (s Size) String() string { return fmt.Sprintf("%d×%d", s.Width, s.Height) }

// Buckets are sizes of about the same area, with sides that are multiples of a number, to which images are resized.
// They are the aspect ratio buckets of NovelAI, as in kohya's scripts.
type Buckets struct {
	area, multiple int
	sizes          []Size
}

// widest is the maximum aspect ratio of a bucket.
const widest = 4

// NewBuckets returns the buckets of about side·side pixels. It fails with ErrSize if side is smaller than multiple or
// too large.
func NewBuckets(side, multiple int) (*Buckets, error) {
	if multiple < 1 || side < multiple || side > maxSide {
		return nil, fmt.Errorf("picture: %w: buckets of %d×%d pixels, expected %d to %d, sides being multiples of %d", ErrSize, side, side, max(1, multiple), maxSide, multiple)
	}
	b := &Buckets{area: side * side, multiple: multiple}
	for w := multiple; w*w <= widest*b.area; w += multiple {
		h := b.area / w / multiple * multiple
		if h >= multiple && w <= widest*h && h <= widest*w {
			b.sizes = append(b.sizes, Size{w, h})
		}
	}
	return b, nil
}

// Sizes returns the buckets, from tall to wide.
func (b *Buckets) Sizes() []Size { return b.sizes }

// Nearest returns the bucket with the nearest aspect ratio, measured by the quotient of the ratios. If two are equally near,
// it returns the larger one.
func (b *Buckets) Nearest(s Size) Size {
	best, distance := Size{}, math.Inf(1)
	for _, x := range b.sizes {
		d := math.Abs(math.Log(float64(x.Width) * float64(s.Height) / (float64(x.Height) * float64(s.Width))))
		if d < distance-1e-9 || d < distance+1e-9 && x.Width*x.Height > best.Width*best.Height {
			best, distance = x, d
		}
	}
	return best
}
