package model

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// These are the inputs of vision-language models in addition to the text inputs, and the axis
// of image tokens.
const (
	Features    = "features of pictures" // f32 [seen places, hidden size]
	FeatureRows = "rows of pictures"     // i32 [seen places]: the tokens that the features replace
	SeenPlaces  = "seen places"
)

// Sighted is the [Family] of a vision-language model: the output of its vision tower replaces
// the embeddings of image tokens.
type Sighted interface {
	Family
	// Tower returns the settings of the vision tower, or nil if config.json has none.
	Tower() *Vision
	// Look emits the tower: f32 [places, features].
	Look(c *Config, b *nn.Builder) graph.Tensor
	// Read builds the graph of a text with images, like Build without images.
	Read(c *Config, b *nn.Builder) Outputs
	// Feed turns one text into the batch that Read expects. For each image, its ids must
	// contain one image token per place, without gaps. Errors: nn.ErrInput.
	Feed(b *data.Batch, ids []int32, pictures []Seen) error
	// Token returns the id of image tokens.
	Token() int32
}

// Seen is an image encoded by the tower: Features are [Places, features], row by row.
type Seen struct {
	Places   int
	Features []float32
}

// Tower implements [Sighted].
func (q *qwenVL) Tower() *Vision { return q.vision }

// Token implements [Sighted].
func (q *qwenVL) Token() int32 { return q.Picture }

// Look implements [Sighted].
func (q *qwenVL) Look(c *Config, b *nn.Builder) graph.Tensor {
	if q.vision == nil {
		return b.G.Fail(fmt.Errorf("%w: a vision tower: config.json has no vision_config", ErrTask))
	}
	prefix := "visual"
	if c.Part != Body {
		prefix = "model.visual"
	}
	return q.vision.build(b, prefix)
}

// Read implements [Sighted].
func (q *qwenVL) Read(c *Config, b *nn.Builder) Outputs {
	l := q.language(c, b)
	x := l.embed()
	places := b.Axis(SeenPlaces)
	features := b.Input(Features, tensor.F32, places, ir.Static(c.HiddenSize))
	x = x.ScatterRows(features, b.Input(FeatureRows, tensor.I32, places))
	return q.layersAfterEmbeddings(l, x)
}

// Feed implements [Sighted]. All tokens, including image tokens, have consecutive positions.
// diffusers with transformers 5 does the same: positions by row and column are only computed
// for callers that ask for them.
func (q *qwenVL) Feed(b *data.Batch, ids []int32, pictures []Seen) error {
	var rows []int32
	var features []float32
	seen := 0
	for i := 0; i < len(ids); {
		if ids[i] != q.Picture {
			i++
			continue
		}
		if seen == len(pictures) {
			return fmt.Errorf("model: %w: token %d is one of a picture, and there are %d", nn.ErrInput, i, len(pictures))
		}
		p := pictures[seen]
		if p.Places < 1 || i+p.Places > len(ids) || len(p.Features) != p.Places*q.vision.Out {
			return fmt.Errorf("model: %w: picture %d has %d places and %d features, with %d tokens left", nn.ErrInput, seen+1, p.Places, len(p.Features), len(ids)-i)
		}
		for range p.Places {
			if ids[i] != q.Picture {
				return fmt.Errorf("model: %w: token %d is none of picture %d, which has %d", nn.ErrInput, i, seen+1, p.Places)
			}
			rows = append(rows, int32(i))
			i++
		}
		features = append(features, p.Features...)
		seen++
	}
	if seen != len(pictures) {
		return fmt.Errorf("model: %w: tokens of %d pictures, and there are %d", nn.ErrInput, seen, len(pictures))
	}
	b.Reset()
	b.Add(ids, nil)
	b.SetInts(FeatureRows, rows)
	b.SetFloats(Features, features)
	return nil
}
