package cache

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/tensor"
)

// drawEncoded draws a sample with values that bf16 holds.
func drawEncoded(t *rapid.T, dtype tensor.DType, name string, control bool) Encoded {
	values := func(n int) []byte { return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "values") }
	size := rapid.IntRange(1, 5)
	image := func() tensor.Tensor {
		h, w := size.Draw(t, "height"), size.Draw(t, "width")
		return floats(dtype, values(2*3*h*w), 2, 3, h, w)
	}
	tokens := rapid.IntRange(0, 6).Draw(t, "tokens")
	e := Encoded{Name: name, Text: Embedding{Embeds: floats(dtype, values(tokens*4), tokens, 4), Mask: []int64{}}, Latent: image()}
	for range tokens {
		e.Text.Mask = append(e.Text.Mask, int64(rapid.IntRange(0, 1).Draw(t, "mask")))
	}
	if control {
		e.Control = image()
	}
	return e
}

// TestCollate: every element is where it should be, and the rest is zero.
func TestCollate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dtype := rapid.SampledFrom([]tensor.DType{tensor.F32, tensor.F16, tensor.BF16}).Draw(t, "dtype")
		control := rapid.Bool().Draw(t, "control")
		var samples []Encoded
		for i := range rapid.IntRange(1, 4).Draw(t, "samples") {
			samples = append(samples, drawEncoded(t, dtype, fmt.Sprint(i), control))
		}
		b, err := Collate(samples)
		require.NoError(t, err)
		require.Equal(t, control, b.Controls.DType != tensor.Invalid)

		tokens := b.Embeds.Shape[1]
		require.Equal(t, []int{len(samples), tokens}, b.EmbedsMask.Shape)
		embeds, err := b.Embeds.Float32s()
		require.NoError(t, err)
		longest := 0
		for i, s := range samples {
			own, err := s.Text.Embeds.Float32s()
			require.NoError(t, err)
			n := len(s.Text.Mask)
			longest = max(longest, n)
			row := embeds[i*tokens*4:][:tokens*4]
			require.Equal(t, own, row[:len(own)])
			require.Equal(t, make([]float32, len(row)-len(own)), row[len(own):])
			require.Equal(t, append(append([]int64{}, s.Text.Mask...), make([]int64, tokens-n)...), int64s(b.EmbedsMask)[i*tokens:][:tokens])
		}
		require.Equal(t, longest, tokens)
		checkImages(t, b.Latents, b.LatentMask, samples, func(e Encoded) tensor.Tensor { return e.Latent })
		if control {
			checkImages(t, b.Controls, b.ControlMask, samples, func(e Encoded) tensor.Tensor { return e.Control })
		}
	})
}

func checkImages(t *rapid.T, latents, mask tensor.Tensor, samples []Encoded, of func(Encoded) tensor.Tensor) {
	height, width := latents.Shape[3], latents.Shape[4]
	require.Equal(t, []int{len(samples), 2, 3, height, width}, latents.Shape)
	require.Equal(t, []int{len(samples), height, width}, mask.Shape)
	require.Equal(t, tensor.F32, mask.DType)
	all, err := latents.Float32s()
	require.NoError(t, err)
	real, err := mask.Float32s()
	require.NoError(t, err)
	tallest, widest := 0, 0
	for i, s := range samples {
		x := of(s)
		own, err := x.Float32s()
		require.NoError(t, err)
		h, w := x.Shape[2], x.Shape[3]
		tallest, widest = max(tallest, h), max(widest, w)
		for p := range 6 {
			for y := range height {
				for z := range width {
					got, m := all[((i*6+p)*height+y)*width+z], real[(i*height+y)*width+z]
					if y < h && z < w {
						require.Equal(t, own[(p*h+y)*w+z], got)
						require.EqualValues(t, 1, m)
					} else {
						require.Zero(t, got)
						require.Zero(t, m)
					}
				}
			}
		}
	}
	require.Equal(t, []int{tallest, widest}, []int{height, width})
}

// loss is the mean squared error over what the mask says is real.
func loss(prediction, target, mask tensor.Tensor) (float64, error) {
	p, err := prediction.Float32s()
	if err != nil {
		return 0, err
	}
	x, err := target.Float32s()
	if err != nil {
		return 0, err
	}
	m, err := mask.Float32s()
	if err != nil {
		return 0, err
	}
	batch, plane := mask.Shape[0], mask.Shape[1]*mask.Shape[2]
	planes := len(x) / batch / plane
	sum, n := 0.0, 0.0
	for i := range x {
		w := float64(m[i/(planes*plane)*plane+i%plane])
		d := float64(p[i]) - float64(x[i])
		sum, n = sum+w*d*d, n+w
	}
	return sum / n, nil
}

// TestPaddingDoesNotCount: a masked loss over a padded batch is that over the
// samples alone, whatever a model predicts for the padding.
func TestPaddingDoesNotCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var samples []Encoded
		var predictions []Encoded
		sum, elements := 0.0, 0
		for i := range rapid.IntRange(1, 4).Draw(t, "samples") {
			s := drawEncoded(t, tensor.F32, fmt.Sprint(i), false)
			p := s
			p.Latent, _ = tensor.New(tensor.F32, s.Latent.Shape...)
			guess := make([]float32, len(p.Latent.Data)/4)
			for j := range guess {
				guess[j] = float32(r.NormFloat64())
			}
			require.NoError(t, tensor.FromFloat32(p.Latent.Data, guess, tensor.F32))
			alone, err := Collate([]Encoded{s})
			require.NoError(t, err)
			predicted, err := Collate([]Encoded{p})
			require.NoError(t, err)
			l, err := loss(predicted.Latents, alone.Latents, alone.LatentMask)
			require.NoError(t, err)
			sum, elements = sum+l*float64(len(guess)), elements+len(guess)
			samples, predictions = append(samples, s), append(predictions, p)
		}
		batch, err := Collate(samples)
		require.NoError(t, err)
		predicted, err := Collate(predictions)
		require.NoError(t, err)
		// The model says something about the padding, too.
		guess, err := predicted.Latents.Float32s()
		require.NoError(t, err)
		for i, v := range guess {
			if v == 0 {
				guess[i] = 1e6
			}
		}
		require.NoError(t, tensor.FromFloat32(predicted.Latents.Data, guess, tensor.F32))
		got, err := loss(predicted.Latents, batch.Latents, batch.LatentMask)
		require.NoError(t, err)
		require.InEpsilon(t, sum/float64(elements), got, 1e-12)
	})
}

func TestCollateErrors(t *testing.T) {
	good := Encoded{Name: "good", Text: embed("ab"), Latent: floats(tensor.F16, []byte{1, 2}, 2, 1, 1, 1)}
	change := func(do func(e *Encoded)) Encoded {
		e := good
		e.Name = "odd"
		do(&e)
		return e
	}
	_, err := Collate(nil)
	require.ErrorIs(t, err, ErrOption)
	for says, e := range map[string]Encoded{
		"odd: prompt_embeds: found F32[2 2], expected BF16 and 2 features as in good":                change(func(e *Encoded) { e.Text.Embeds = floats(tensor.F32, []byte("abab"), 2, 2) }),
		"odd: prompt_embeds: found BF16[2 1], expected BF16 and 2 features":                          change(func(e *Encoded) { e.Text.Embeds = floats(tensor.BF16, []byte("ab"), 2, 1) }),
		"odd: prompt_embeds_mask: found shape [1]":                                                   change(func(e *Encoded) { e.Text.Mask = []int64{1} }),
		"odd: image: found F32[2 1 1 1], expected F16 and [2 1] before height and width as in good":  change(func(e *Encoded) { e.Latent = floats(tensor.F32, []byte{1, 2}, 2, 1, 1, 1) }),
		"odd: image: found F16[1 1 1 2], expected F16 and [2 1]":                                     change(func(e *Encoded) { e.Latent = floats(tensor.F16, []byte{1, 2}, 1, 1, 1, 2) }),
		"odd: image: found F16[2 1 1], expected F16 and [2 1]":                                       change(func(e *Encoded) { e.Latent = floats(tensor.F16, []byte{1, 2}, 2, 1, 1) }),
		"odd: image: latent: found INVALID":                                                          change(func(e *Encoded) { e.Latent = tensor.Tensor{} }),
		"found control images for 1 of 2 samples, expected all or none":                              change(func(e *Encoded) { e.Control = good.Latent }),
		"odd: prompt_embeds: not what the cache holds: tensor: BF16[9 2] takes 36 bytes, found 8":    change(func(e *Encoded) { e.Text.Embeds.Shape = []int{9, 2}; e.Text.Mask = make([]int64, 9) }),
		"odd: image: latent: not what the cache holds: tensor: F16[2 1 1 9] takes 36 bytes, found 4": change(func(e *Encoded) { e.Latent.Shape = []int{2, 1, 1, 9} }),
	} {
		_, err := Collate([]Encoded{good, e})
		require.ErrorIs(t, err, ErrTensor)
		require.ErrorContains(t, err, says)
	}
	for says, packed := range map[string]Encoded{
		"odd: prompt_embeds: found F4, expected a type of whole bytes": change(func(e *Encoded) {
			e.Text.Embeds = tensor.Tensor{DType: tensor.F4, Shape: []int{2, 2}, Data: []byte("ab")}
		}),
		"odd: image: found F6_E2M3, expected a type of whole bytes": change(func(e *Encoded) {
			e.Latent = tensor.Tensor{DType: tensor.F6E2M3, Shape: []int{1, 4}, Data: []byte("abc")}
		}),
	} {
		_, err := Collate([]Encoded{packed, packed})
		require.ErrorIs(t, err, ErrTensor)
		require.ErrorContains(t, err, says)
	}
	huge := good
	huge.Text = Embedding{Embeds: tensor.Tensor{DType: tensor.BF16, Shape: []int{0, math.MaxInt}, Data: []byte{}}}
	_, err = Collate([]Encoded{huge})
	require.NoError(t, err, "nothing of something is nothing")
}

// A third of the captions give way, the same ones whenever asked.
func TestDropCaption(t *testing.T) {
	dropped := 0
	for step := range uint32(200) {
		for sample := range 50 {
			d := DropCaption(7, step, sample, 0.3)
			require.Equal(t, d, DropCaption(7, step, sample, 0.3))
			if d {
				dropped++
				require.True(t, DropCaption(7, step, sample, 0.4), "a higher rate drops more")
			}
			require.True(t, DropCaption(7, step, sample, 1))
			require.True(t, DropCaption(7, step, sample, 2))
			require.False(t, DropCaption(7, step, sample, 0))
			require.False(t, DropCaption(7, step, sample, -1))
			require.False(t, DropCaption(7, step, sample, math.NaN()))
		}
	}
	require.InDelta(t, 3000, dropped, 3*math.Sqrt(10000*0.3*0.7))
	differ := map[string]int{}
	for i := range 1000 {
		here := DropCaption(7, 3, i, 0.5)
		for name, there := range map[string]bool{"seed": DropCaption(8, 3, i, 0.5), "step": DropCaption(7, 4, i, 0.5), "sample": DropCaption(7, 3, i+1, 0.5)} {
			if here != there {
				differ[name]++
			}
		}
	}
	for _, name := range []string{"seed", "step", "sample"} {
		require.InDelta(t, 500, differ[name], 75, name)
	}
}
