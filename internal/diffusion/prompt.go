package diffusion

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// clipLength is the maximum prompt length of CLIP in tokens.
const clipLength = 77

// captions configures how a pipeline encodes captions, as in diffusers.
type captions struct {
	name  string                   // identifies the method in recipes
	clean func(text string) string // normalizes a prompt; nil means no change
	// template contains {} in place of the prompt. Empty means none. The states of its first
	// tokens, as many as drop, are dropped.
	template string
	drop     int
	// cut truncates a prompt in its template before main does. Nil means no such truncation.
	cut  func(t *textModel, full, text string) (string, error)
	main reading
	// unguided is the maximum number of tokens for transformers without a guidance embedding.
	// Zero means that of main.
	unguided int
	second   *reading // encoder of the pooled embedding; nil if there is none
	shows    *shows   // presentation of images; nil if the encoder reads none
}

// lastState selects the output of the last layer and its norm.
var lastState = []int{-1}

// captions returns the caption encoding of the pipeline. Errors: ErrPipeline.
func (p *Pipeline) captions() (captions, error) {
	switch v := p.variant(); {
	case v.captions != nil:
		c := *v.captions
		if c.unguided > 0 && !p.transformerFields().Bool("guidance_embeds", false) {
			c.main.longest = c.unguided
		}
		return c, nil
	case v.unread != "":
		return captions{}, fmt.Errorf("diffusion: %w: captions of a %s: %s; make the cache with the Python trainer, or train from an existing one", ErrPipeline, v.class, v.unread)
	default:
		known := variants(func(v variant) bool { return v.captions != nil })
		return captions{}, fmt.Errorf("diffusion: %w: captions of a %s%s; supported: %s", ErrPipeline, v.class, suggest.DidYouMean(v.class, known), strings.Join(known, ", "))
	}
}

// transformerFields returns the keys of the transformer's config.json, or none if it cannot
// be read.
func (p *Pipeline) transformerFields() *model.Fields {
	raw, err := p.transformerConfig()
	if err == nil {
		if f, err := model.ParseFields(raw); err == nil {
			return f
		}
	}
	return &model.Fields{}
}
