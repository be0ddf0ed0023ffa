package main

import (
	"image"
	"math"
)

// template is an image that this program can draw, as pixels.
type template struct {
	scene
	glowing bool
	pixels  []float32
}

// templates returns all captions in both styles, at many positions and sizes.
func templates() (all []template) {
	for colour := range colours {
		for shape := range shapes {
			for at := range 3 * 3 * 3 {
				p := scene{colour, shape, side/2 + 1.5*float64(at%3-1), side/2 + 1.5*float64(at/3%3-1), float64(10 + at/9)}
				all = append(all, template{p, false, pixels(p.paint(plain)).Values}, template{p, true, pixels(p.paint(glow)).Values})
			}
		}
	}
	return all
}

// score counts generated images that are in the style, that have the color of their caption,
// and that have its shape. Each image is classified by its nearest template.
type score struct{ drawn, glowing, colour, shape int }

func judge(drawn []image.Image, asked []scene, all []template) (s score) {
	for i, m := range drawn {
		found := nearest(pixels(m).Values, all)
		s.drawn++
		s.glowing += count(found.glowing)
		s.colour += count(found.colour == asked[i].colour)
		s.shape += count(found.shape == asked[i].shape)
	}
	return s
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func nearest(x []float32, all []template) (best template) {
	least := math.Inf(1)
	for _, t := range all {
		sum := 0.0
		for i, v := range t.pixels {
			d := float64(v - x[i])
			if sum += d * d; sum > least {
				break
			}
		}
		if sum < least {
			least, best = sum, t
		}
	}
	return best
}
