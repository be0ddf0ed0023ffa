package diffusion

import (
	"fmt"
	"image"

	"github.com/lorafuse/lorafuse/data/picture"
)

// sizing is how the pictures of a cache are brought to sizes.
type sizing struct {
	name  string // of this way, for recipes
	of    func(picture.Size) picture.Size
	scale func(image.Image, picture.Size) []float32
}

// sizing is that of a pipeline. Where pictures are edited it is that of drawing, and that of
// the Python trainers: pictures and controls keep all that they show, and their sides are
// rounded, so that those of one shape lie exactly one over the other. Otherwise pictures
// cover a bucket. Errors: picture.ErrSize.
func (p *Pipeline) sizing(side, multiple int) (sizing, error) {
	buckets, err := picture.NewBuckets(side, multiple)
	if err != nil {
		return sizing{}, fmt.Errorf("diffusion: %w", err)
	}
	if p.Edits() {
		return sizing{
			name:  "lanczos, whole",
			of:    func(s picture.Size) picture.Size { return around(side*side, s, multiple) },
			scale: func(m image.Image, s picture.Size) []float32 { return picture.Signed(picture.Lanczos.Scale(m, s)) },
		}, nil
	}
	return sizing{name: "catmull-rom, cover", of: buckets.Of, scale: picture.Cover}, nil
}
