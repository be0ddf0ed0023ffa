package dit

import (
	"fmt"

	"github.com/lorafuse/lorafuse/nn"
)

// layout is how many tokens the samples of a batch have. The rows of a sample among all
// tokens are the padding of its text, its text, and its pictures: what it sees is one
// interval.
type layout struct {
	samples int
	text    int    // places of a sample for its text
	grids   []grid // of what is denoised, then of the controls
}

// image is how many tokens of pictures a sample has.
func (l layout) image() (n int) {
	for _, g := range l.grids {
		n += g.tokens()
	}
	return n
}

// predicted is how many of these are denoised.
func (l layout) predicted() int { return l.grids[0].tokens() }

// joint is how many tokens a sample has.
func (l layout) joint() int { return l.text + l.image() }

// bounds are the sizes of the axes.
func (l layout) bounds() map[string]int {
	return map[string]int{
		Samples: l.samples, nn.Tokens: l.joint(), TextTokens: l.text, ImageTokens: l.image(), PredictedTokens: l.predicted(),
	}
}

// layoutOf is the layout of samples like s, which is not checked.
func layoutOf(samples int, s Sample) layout {
	l := layout{samples: samples, text: s.Prompt.tokens(), grids: []grid{s.Latent.grid()}}
	for _, c := range s.Controls {
		l.grids = append(l.grids, c.grid())
	}
	return l
}

// tokens is the length of the text.
func (p Prompt) tokens() int {
	if p.Features < 1 || len(p.Values) == 0 {
		return len(p.Mask)
	}
	return len(p.Values) / p.Features
}

// newLayout is the layout of samples, once they are found to be what s says. Errors:
// ErrSample.
func (s Space) newLayout(samples []Sample) (layout, error) {
	if len(samples) == 0 {
		return layout{}, fmt.Errorf("dit: %w: found none, expected one at least", ErrSample)
	}
	l := layoutOf(len(samples), samples[0])
	for i, x := range samples {
		if err := s.check(x, samples[0]); err != nil {
			return layout{}, fmt.Errorf("dit: %w: sample %d: %w", ErrSample, i, err)
		}
		l.text = max(l.text, x.Prompt.tokens())
	}
	return l, nil
}

// check says what is wrong with a sample of a batch with another one.
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

// oneFrame refuses latents of several. Errors: ErrSample.
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
