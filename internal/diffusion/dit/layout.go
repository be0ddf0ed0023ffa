package dit

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/nn"
)

// layout holds the numbers of tokens of the samples of a batch. The rows of a sample are its
// text padding, its text tokens and its image tokens, so that the keys of a token are one
// interval.
type layout struct {
	samples int
	text    int    // text positions per sample
	grids   []grid // of the noisy latent, then of the controls
}

// image returns the number of image tokens per sample.
func (l layout) image() (n int) {
	for _, g := range l.grids {
		n += g.tokens()
	}
	return n
}

// predicted returns the number of tokens that are denoised.
func (l layout) predicted() int { return l.grids[0].tokens() }

// joint returns the number of tokens per sample.
func (l layout) joint() int { return l.text + l.image() }

// bounds returns the sizes of the axes.
func (l layout) bounds() map[string]int {
	return map[string]int{
		Samples: l.samples, nn.Tokens: l.joint(), TextTokens: l.text, ImageTokens: l.image(), PredictedTokens: l.predicted(),
	}
}

// layout returns the layout of samples like s. It does not validate s.
func (p patches) layout(samples int, s Sample) layout {
	l := layout{samples: samples, text: s.Prompt.tokens(), grids: []grid{p.grid(s.Latent)}}
	for _, c := range s.Controls {
		l.grids = append(l.grids, p.grid(c))
	}
	return l
}

// tokens returns the number of text tokens.
func (p Prompt) tokens() int {
	if p.Features < 1 || len(p.Values) == 0 {
		return len(p.Mask)
	}
	return len(p.Values) / p.Features
}

// newLayout validates samples and returns their layout in tokens of p. Errors: ErrSample.
func (s Space) newLayout(p patches, samples []Sample) (layout, error) {
	if len(samples) == 0 {
		return layout{}, fmt.Errorf("dit: %w: found none, expected one at least", ErrSample)
	}
	l := p.layout(len(samples), samples[0])
	for i, x := range samples {
		if err := s.check(x, samples[0]); err != nil {
			return layout{}, fmt.Errorf("dit: %w: sample %d: %w", ErrSample, i, err)
		}
		l.text = max(l.text, x.Prompt.tokens())
	}
	return l, nil
}

// check validates a sample against the space and the first sample of the batch.
func (s Space) check(x, first Sample) error {
	if err := s.checkLatent(x.Latent, first.Latent); err != nil {
		return fmt.Errorf("latent: %w", err)
	}
	if n := x.Latent.size(); x.Target != nil && len(x.Target) != n {
		return fmt.Errorf("target: found %d elements, expected %d as the latent has", len(x.Target), n)
	}
	switch {
	case len(x.Controls) > 0 && !s.Controls:
		return fmt.Errorf("found %d controls, expected none: the transformer takes no pictures to begin with", len(x.Controls))
	case len(x.Controls) != len(first.Controls):
		return fmt.Errorf("found %d controls, expected %d as the first sample has", len(x.Controls), len(first.Controls))
	}
	for i, c := range x.Controls {
		if err := s.checkLatent(c, first.Controls[i]); err != nil {
			return fmt.Errorf("control %d: %w", i, err)
		}
	}
	return s.checkPrompt(x.Prompt)
}

func (s Space) checkLatent(l, first Latent) error {
	switch {
	case l.Channels != s.Channels:
		return fmt.Errorf("found %d channels, expected %d", l.Channels, s.Channels)
	case l.Frames < 1 || l.Height < 1 || l.Width < 1:
		return fmt.Errorf("found %d frames of %d×%d, expected 1 or more of each", l.Frames, l.Height, l.Width)
	case l.Height%s.Multiple != 0 || l.Width%s.Multiple != 0:
		return fmt.Errorf("found %d×%d, expected multiples of %d", l.Height, l.Width, s.Multiple)
	case l.Frames != first.Frames || l.Height != first.Height || l.Width != first.Width:
		return fmt.Errorf("found %d frames of %d×%d, expected %d of %d×%d as the first sample has", l.Frames, l.Height, l.Width, first.Frames, first.Height, first.Width)
	case len(l.Values) != l.size():
		return fmt.Errorf("found %d values, expected %d for %d×%d×%d×%d", len(l.Values), l.size(), l.Channels, l.Frames, l.Height, l.Width)
	}
	return nil
}

func (s Space) checkPrompt(p Prompt) error {
	switch {
	case p.Features != s.Text:
		return fmt.Errorf("text: found %d features of a token, expected %d", p.Features, s.Text)
	case len(p.Values) == 0 || len(p.Values)%p.Features != 0:
		return fmt.Errorf("text: found %d values, expected %d for each of 1 token or more", len(p.Values), p.Features)
	case p.Mask != nil && len(p.Mask) != p.tokens():
		return fmt.Errorf("text: found a mask of %d tokens, expected %d", len(p.Mask), p.tokens())
	case s.Pooled > 0 && len(p.Pooled) != s.Pooled:
		return fmt.Errorf("text: found %d pooled features, expected %d", len(p.Pooled), s.Pooled)
	}
	return nil
}

// oneFrame returns an error if a latent has several frames. Errors: ErrSample.
func oneFrame(samples []Sample) error {
	for i, s := range samples {
		for _, l := range append([]Latent{s.Latent}, s.Controls...) {
			if l.Frames != 1 {
				return fmt.Errorf("dit: %w: sample %d: found %d frames, expected 1", ErrSample, i, l.Frames)
			}
		}
	}
	return nil
}
