package dit_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
)

// Samples that these architectures cannot take are refused, and it is said why.
func TestMoreWrongSamples(t *testing.T) {
	for _, x := range []struct {
		name, what string
		change     func(s *dit.Sample)
		want       string
	}{
		{"zimage", "text beyond the rotary table", func(s *dit.Sample) { s.Prompt = longText(s.Prompt, 250) }, "sample 1: a token is at 257 on axis 0 of the rotary table, expected less than 256 of axes_lens"},
		{"zimage", "no seen text", func(s *dit.Sample) { s.Prompt.Mask = make([]bool, 19) }, "sample 1: found a text without tokens that are seen, expected 1 or more"},
		{"zimage", "controls", func(s *dit.Sample) { s.Controls = []dit.Latent{s.Latent} }, "sample 1: found 1 controls, expected none: the transformer takes no pictures to begin with"},
		{"flux2", "frames", func(s *dit.Sample) { s.Latent.Channels = 8 }, "sample 1: latent: found 8 channels, expected 16"},
		{"qwenimage21", "slots of nothing", func(s *dit.Sample) { s.Prompt.Slots = []bool{false, true, false, false, false, false} }, "sample 1: text: found 1 slots for controls, expected 0, one for each 4 places of the controls"},
		{"more/qwen21-controls", "no slots", func(s *dit.Sample) { s.Prompt.Slots = nil }, "sample 1: text: found 0 slots for controls, expected 7, one for each 4 places of the controls"},
		{"more/qwen21-controls", "slots of fewer tokens", func(s *dit.Sample) { s.Prompt.Slots = s.Prompt.Slots[1:] }, "sample 1: text: found slots of 11 tokens, expected 12"},
		{"more/qwen21-controls", "slots apart", func(s *dit.Sample) {
			s.Prompt.Slots = slices.Clone(s.Prompt.Slots)
			s.Prompt.Slots[3], s.Prompt.Slots[10] = false, true
		}, "sample 1: text: found token 3 between the slots of control 0, expected them side by side"},
		{"kandinsky5", "control", func(s *dit.Sample) { s.Controls = []dit.Latent{s.Latent} }, "sample 1: found 1 controls, expected none: visual_cond is false"},
		{"kandinsky5", "stretch", func(s *dit.Sample) { s.Stretch[1] = -2 }, "sample 1: stretch: found -2 on axis 1, expected more than 0"},
		{"kandinsky5", "text", func(s *dit.Sample) { s.Prompt = longText(s.Prompt, 1025) }, "sample 1: text: found 1025 tokens that are seen, expected 1 to 1024"},
		{"kandinsky5", "pooled", func(s *dit.Sample) { s.Prompt.Pooled = nil }, "sample 1: text: found 0 pooled features, expected 20"},
		{"more/kandinsky5-frames", "size of the control", func(s *dit.Sample) {
			c := s.Controls[0]
			c.Frames = 1
			s.Controls = []dit.Latent{c}
		}, "sample 1: control: found 1 frames of 6×5, expected 4 of 6×5 as the latent has"},
		{"more/kandinsky5-frames", "channels of the control", func(s *dit.Sample) {
			c := s.Controls[0]
			c.Channels = 5
			s.Controls = []dit.Latent{c}
		}, "sample 1: control: found 5 channels of 480 values in all, expected 3, or 4 with a mask"},
	} {
		t.Run(x.name+"/"+x.what, func(t *testing.T) {
			g := moreGoldens[x.name](t, x.name)
			_, f := open(t, x.name)
			x.change(&g.samples[1])
			var b data.Batch
			err := f.Arrays(&b, g.samples)
			require.ErrorIs(t, err, dit.ErrSample)
			require.EqualError(t, err, "dit: wrong sample: "+x.want)
		})
	}
	g := readKandinsky(t, "more/kandinsky5-frames")
	_, f := open(t, "more/kandinsky5-frames")
	for i := range g.samples {
		l := &g.samples[i].Latent
		l.Frames, l.Height = 3, 8
		g.samples[i].Controls = nil
	}
	var b data.Batch
	require.ErrorContains(t, f.Arrays(&b, g.samples), "latent: found 3 frames of 8×5, expected multiples of 2 and 2×1")
}

// longText is a text of so many tokens.
func longText(p dit.Prompt, tokens int) dit.Prompt {
	p.Values, p.Mask = make([]float32, tokens*p.Features), nil
	return p
}

// Unpack undoes what Arrays does with a target, whatever the tokens have.
func TestMoreUnpack(t *testing.T) {
	for name, read := range moreGoldens {
		g := read(t, name)
		_, f := open(t, name)
		var b data.Batch
		require.NoError(t, f.Arrays(&b, g.samples))
		rows := array(t, &b, dit.Target)
		got, err := f.Unpack(rows, len(g.samples), g.samples[0].Latent)
		require.NoError(t, err)
		for i, s := range g.samples {
			require.Equal(t, s.Target, got[i], name)
		}
		_, err = f.Unpack(rows[1:], len(g.samples), g.samples[0].Latent)
		require.ErrorIs(t, err, dit.ErrSample)
	}
}

// A control of Kandinsky without a mask counts everywhere, and none is zeros.
func TestKandinskyControls(t *testing.T) {
	g := readKandinsky(t, "more/kandinsky5-frames")
	m, _ := open(t, g.name)
	s, c := g.samples[0], g.samples[0].Controls[0]
	places := c.Frames * c.Height * c.Width
	values := func(mask float32) []dit.Sample {
		s, with := s, c
		with.Values = slices.Clone(c.Values)
		if mask == 0 {
			clear(with.Values)
		}
		for i := range places {
			with.Values[3*places+i] = mask
		}
		s.Controls = []dit.Latent{with}
		return []dit.Sample{s}
	}
	whole, none, plain := s, s, c
	plain.Channels, plain.Values = 3, c.Values[:3*places]
	whole.Controls, none.Controls = []dit.Latent{plain}, nil
	require.Equal(t, run(t, m, nil, values(1)), run(t, m, nil, []dit.Sample{whole}))
	require.Equal(t, run(t, m, nil, values(0)), run(t, m, nil, []dit.Sample{none}))
	require.NotEqual(t, run(t, m, nil, values(0)), run(t, m, nil, values(1)))
}
