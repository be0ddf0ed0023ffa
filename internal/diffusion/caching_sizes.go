package diffusion

import (
	"fmt"
	"image"

	"github.com/lorafuse/lorafuse/internal/data/picture"
)

// sizing resizes the images of a cache.
type sizing struct {
	name  string // identifies the method in recipes
	of    func(picture.Size) picture.Size
	scale func(image.Image, picture.Size) []float32
}

// sizing returns the resizing of a pipeline. Edit pipelines resize as in inference and in the
// Python trainers: they do not crop images or control images, but round their sides, so that
// images of one shape are aligned. Other pipelines resize and crop to a bucket. Errors:
// picture.ErrSize.
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
	return sizing{name: "catmull-rom, cover", of: buckets.Nearest, scale: picture.Cover}, nil
}
