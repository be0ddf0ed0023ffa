package picture

import (
	"fmt"
	"math"
)

// Size is that of a picture, in pixels.
type Size struct{ Width, Height int }

// String is the size as people write it: 1344×768.
func (s Size) String() string { return fmt.Sprintf("%d×%d", s.Width, s.Height) }

// Buckets are the sizes that pictures of any shape are brought to: all of about one area,
// with sides that are multiples of a number (Novel AI's aspect ratio buckets, as kohya's
// scripts have them).
type Buckets struct {
	area, multiple int
	sizes          []Size
}

// widest is how many times as long as high a bucket may be, or the other way round.
const widest = 4

// NewBuckets are the buckets of side·side pixels. Errors: ErrSize where no multiple fits
// into that.
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

// Sizes lists the buckets, from high ones to wide ones.
func (b *Buckets) Sizes() []Size { return b.sizes }

// Of is the bucket of the shape that is nearest to that of a picture, by the ratio of
// their ratios; of two that are as near, the larger.
func (b *Buckets) Of(s Size) Size {
	best, distance := Size{}, math.Inf(1)
	for _, x := range b.sizes {
		d := math.Abs(math.Log(float64(x.Width) * float64(s.Height) / (float64(x.Height) * float64(s.Width))))
		if d < distance-1e-9 || d < distance+1e-9 && x.Width*x.Height > best.Width*best.Height {
			best, distance = x, d
		}
	}
	return best
}
