package feed_test

import (
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/feed"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/tensor"
)

// plain is a transformer without a graph: it notes the samples that it is given.
type plain struct {
	space dit.Space
	given []dit.Sample
}

func (p *plain) Check(*model.Config) error                          { return nil }
func (p *plain) Build(*model.Config, *nn.Builder) (o model.Outputs) { return o }
func (p *plain) Space() dit.Space                                   { return p.space }

func (p *plain) Bounds(samples int, s dit.Sample) map[string]int {
	n := s.Latent.Height * s.Latent.Width / 4
	all := n
	for _, c := range s.Controls {
		all += c.Height * c.Width / 4
	}
	return map[string]int{dit.Samples: samples, dit.PredictedTokens: n, nn.Tokens: all + len(s.Prompt.Mask)}
}

func (p *plain) Arrays(b *data.Batch, samples []dit.Sample) error {
	b.Reset()
	p.given = slices.Clone(samples)
	for i, s := range samples {
		p.given[i].Target = slices.Clone(s.Target) // the feed uses the array again
		if s.Weight != 0 {
			b.LossTokens++
		}
	}
	return nil
}

func (p *plain) Unpack([]float32, int, dit.Latent) ([][]float32, error) { return nil, nil }

// halved is a scale.
type halved struct{}

func (halved) Normalise(z dit.Latent) {
	for i := range z.Values {
		z.Values[i] /= 2
	}
}

// folder is a folder of pictures, and a cache of them.
type folder struct {
	t       testing.TB
	dir     string
	samples []cache.Sample
}

func newFolder(t testing.TB, sizes ...[2]int) *folder {
	f := &folder{t: t, dir: t.TempDir()}
	for i := range sizes {
		name := filepath.Join(f.dir, fmt.Sprintf("%03d", i))
		require.NoError(t, os.WriteFile(name+".txt", fmt.Appendf(nil, "caption %d", i), 0o666))
		file, err := os.Create(name + ".png")
		require.NoError(t, err)
		require.NoError(t, png.Encode(file, image.NewGray(image.Rect(0, 0, 1+i, 1))))
		require.NoError(t, file.Close())
		f.samples = append(f.samples, cache.Sample{Image: name + ".png", Caption: name + ".txt"})
	}
	c := f.open()
	numbers := philox.NewStream(1, 2, 3)
	random := func(shape ...int) tensor.Tensor {
		x, err := tensor.New(tensor.F32, shape...)
		require.NoError(t, err)
		values := make([]float32, x.NumElements())
		for i := range values {
			values[i] = float32(numbers.Normal(uint64(i)))
		}
		copy(x.Data, tensor.BytesOf(values))
		return x
	}
	text := func(tokens int) func(string) (cache.Embedding, error) {
		return func(string) (cache.Embedding, error) {
			mask := slices.Repeat([]int64{1}, tokens)
			mask[tokens-1] = 0
			return cache.Embedding{Embeds: random(tokens, 6), Mask: mask}, nil
		}
	}
	for i, s := range f.samples {
		_, err := c.Text(t.Context(), s.Caption, text(2+i))
		require.NoError(t, err)
		_, err = c.Image(t.Context(), s.Image, func([]byte) (tensor.Tensor, error) { return random(3, 1, sizes[i][0], sizes[i][1]), nil })
		require.NoError(t, err)
	}
	_, err := c.Empty(t.Context(), text(3))
	require.NoError(t, err)
	return f
}

func (f *folder) open() *cache.Cache {
	recipe := cache.Recipe{Model: "a model"}
	c, err := cache.Open(filepath.Join(f.dir, "cache"), cache.Options{Text: recipe, Image: recipe})
	require.NoError(f.t, err)
	return c
}

func (f *folder) options() feed.Options {
	levels, err := flow.Parse([]byte("{}"))
	require.NoError(f.t, err)
	return feed.Options{
		Samples: f.samples, Cache: f.open(), Scale: halved{}, Model: &plain{space: dit.Space{Channels: 3, Multiple: 2, Text: 6}},
		Table: levels.Table(), BatchSize: 2, Seed: 7, Shuffle: true, Guidance: 1,
	}
}

func (f *folder) feed(o feed.Options) *feed.Feed {
	x, err := feed.New(f.t.Context(), o)
	require.NoError(f.t, err)
	return x
}

// micro gives the samples of a micro-batch.
func micro(t require.TestingT, f *feed.Feed, step, n int) []dit.Sample {
	var b data.Batch
	require.NoError(t, f.Fill(&b, step, n))
	return f.Model.(*plain).given
}

// TestFill: latents are the pictures' mixed with noise by the level that was drawn, targets
// noise less pictures, texts those of the captions.
func TestFill(t *testing.T) {
	f := newFolder(t, [2]int{2, 4})
	o := f.options()
	o.BatchSize, o.Weighting = 1, flow.SigmaSqrt
	s := micro(t, f.feed(o), 5, 0)[0]

	e, err := o.Cache.Sample(t.Context(), f.samples[0], false)
	require.NoError(t, err)
	picture, err := e.Latent.Float32s()
	require.NoError(t, err)
	draw := flow.NewDraw(7, 5, 0)
	sigma, timestep := o.Timesteps.At(o.Table, draw, 2)
	noise := make([]float32, 24)
	draw.Noise(noise)
	require.Equal(t, timestep, s.Timestep)
	require.Equal(t, float32(1), s.Guidance)
	require.InDelta(t, 1/float64(sigma)/float64(sigma), s.Weight, 1e-4)
	require.Equal(t, dit.Latent{Channels: 3, Frames: 1, Height: 2, Width: 4, Values: s.Latent.Values}, s.Latent)
	for i, x := range picture {
		require.InDelta(t, noise[i]-x/2, s.Target[i], 1e-6)
		require.InDelta(t, (1-sigma)*x/2+sigma*noise[i], s.Latent.Values[i], 1e-6)
	}
	require.Equal(t, []bool{true, false}, s.Prompt.Mask)
	require.Len(t, s.Prompt.Values, 12)

	o.CaptionDropout = 1
	s = micro(t, f.feed(o), 5, 0)[0]
	require.Equal(t, []bool{true, true, false}, s.Prompt.Mask, "the empty prompt")
}

// TestSizes: batches are of one size; each epoch has every picture once, in an order of its
// own; what is left over of a size is filled with samples that count for nothing.
func TestSizes(t *testing.T) {
	f := newFolder(t, [2]int{2, 2}, [2]int{2, 4}, [2]int{4, 2}, [2]int{2, 2}, [2]int{2, 4}, [2]int{2, 2})
	o := f.options()
	x := f.feed(o)
	require.Equal(t, 4, x.StepsPerEpoch())
	require.Equal(t, "6 pictures of 3 sizes, 4 steps per epoch", x.String())
	require.Equal(t, 7+1, x.Bounds()[nn.Tokens], "the longest caption, of a picture of one token")
	orders := map[string]bool{}
	for epoch := range 3 {
		sizes, order := map[[2]int]int{}, ""
		for step := epoch * 4; step < epoch*4+4; step++ {
			require.Equal(t, 1, x.Micros(step))
			real := 0
			for _, s := range micro(t, x, step, 0) {
				require.Len(t, x.Model.(*plain).given, 2)
				if s.Weight != 0 {
					real++
					sizes[[2]int{s.Latent.Height, s.Latent.Width}]++
					order += fmt.Sprint(len(s.Prompt.Mask)) // which tells pictures apart
				}
			}
			require.Equal(t, x.LossTokens(step), real)
		}
		require.Equal(t, map[[2]int]int{{2, 2}: 3, {2, 4}: 2, {4, 2}: 1}, sizes)
		orders[order] = true
	}
	require.Greater(t, len(orders), 1)

	o.DropLast, o.Accumulation = true, 2
	require.Equal(t, 1, f.feed(o).StepsPerEpoch())
	o.Accumulation = 3
	_, err := feed.New(t.Context(), o)
	require.ErrorIs(t, err, feed.ErrOption)
	require.ErrorContains(t, err, "do not fill a step of batches of 2 × 3")
}

// TestCut: the samples of a step, and what is drawn for them, do not depend on how its
// micro-batches are cut.
func TestCut(t *testing.T) {
	sizes := make([][2]int, 9)
	for i := range sizes {
		sizes[i] = [2]int{2, 2 + 2*(i%2)}
	}
	f := newFolder(t, sizes...)
	rapid.Check(t, func(t *rapid.T) {
		o := f.options()
		o.BatchSize, o.Accumulation = 4, rapid.IntRange(1, 3).Draw(t, "accumulation")
		o.Seed, o.Shuffle = rapid.Uint64().Draw(t, "seed"), rapid.Bool().Draw(t, "shuffle")
		o.CaptionDropout = 0.5
		whole, err := feed.New(f.t.Context(), o)
		require.NoError(t, err)
		cut, err := whole.Recut(rapid.SampledFrom([]int{2, 4}).Draw(t, "cut"))
		require.NoError(t, err)
		require.Equal(t, whole.StepsPerEpoch(), cut.StepsPerEpoch())
		require.LessOrEqual(t, cut.MaxTokens(), whole.MaxTokens()/2)
		step := rapid.IntRange(0, 20).Draw(t, "step")
		require.Equal(t, samples(t, whole, step), samples(t, cut, step))
	})
}

// samples are those of a step that count.
func samples(t require.TestingT, f *feed.Feed, step int) (all []dit.Sample) {
	for n := range f.Micros(step) {
		for _, s := range micro(t, f, step, n) {
			if s.Weight != 0 {
				all = append(all, s)
			}
		}
	}
	require.Len(t, all, f.LossTokens(step))
	drawn := map[float32]bool{}
	for _, s := range all {
		drawn[s.Target[0]] = true
	}
	require.Len(t, drawn, len(all), "each has noise of its own")
	return all
}

// TestFileForms: what Python has cached gives the same bits from .pt and from safetensors,
// and the same digest.
func TestFileForms(t *testing.T) {
	const python = "../../data/cache/testdata/dit"
	var samples []cache.Sample
	for _, name := range []string{"000", "001"} {
		samples = append(samples, cache.Sample{Image: name + ".png", Caption: name + ".txt"})
	}
	read := func(extension string) (*feed.Feed, []dit.Sample) {
		dir := t.TempDir()
		files, err := filepath.Glob(filepath.Join(python, "*", "*"+extension))
		require.NoError(t, err)
		require.Len(t, files, 5)
		for _, file := range files {
			to := filepath.Join(dir, filepath.Base(filepath.Dir(file)))
			require.NoError(t, os.MkdirAll(to, 0o777))
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(to, filepath.Base(file)), raw, 0o666))
		}
		c, err := cache.Open(dir, cache.Options{Unkeyed: cache.Accept})
		require.NoError(t, err)
		levels, err := flow.Parse([]byte("{}"))
		require.NoError(t, err)
		f, err := feed.New(t.Context(), feed.Options{
			Samples: samples, Cache: c, Model: &plain{space: dit.Space{Channels: 4, Multiple: 2, Text: 32}},
			Table: levels.Table(), BatchSize: 2, Seed: 1, CaptionDropout: 0.3,
		})
		require.NoError(t, err)
		return f, slices.Concat(micro(t, f, 0, 0), micro(t, f, 1, 0), micro(t, f, 2, 0))
	}
	pt, fromPT := read(".pt")
	safe, fromSafe := read(".safetensors")
	require.Equal(t, fromPT, fromSafe)
	require.Equal(t, pt.Digest(), safe.Digest())
	require.Equal(t, 2, safe.Unkeyed())
	require.False(t, math.IsNaN(float64(fromPT[0].Latent.Values[0])))
}

// TestRefuses: entries that the transformer cannot take are named.
func TestRefuses(t *testing.T) {
	f := newFolder(t, [2]int{2, 3})
	o := f.options()
	for says, space := range map[string]dit.Space{
		"found 6 features of a token, expected 7":                          {Channels: 3, Multiple: 1, Text: 7},
		"found a latent of 3 channels, expected 4 as the transformer has":  {Channels: 4, Multiple: 1, Text: 6},
		"found a latent of 2×3, expected multiples of 2":                   {Channels: 3, Multiple: 2, Text: 6},
		"found 0 features of the whole caption (pooled_prompt_embeds), ex": {Channels: 3, Multiple: 1, Text: 6, Pooled: 5},
	} {
		o.Model = &plain{space: space}
		_, err := feed.New(t.Context(), o)
		require.ErrorIs(t, err, dit.ErrSample)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "000.")
	}
	o.Model = &plain{space: dit.Space{Channels: 3, Multiple: 1, Text: 6}}
	for _, broken := range []func(*feed.Options){
		func(o *feed.Options) { o.BatchSize = 0 },
		func(o *feed.Options) { o.Cut = 3 },
		func(o *feed.Options) { o.Samples = nil },
	} {
		o := o
		broken(&o)
		_, err := feed.New(t.Context(), o)
		require.ErrorIs(t, err, feed.ErrOption)
	}
	x := f.feed(o)
	require.ErrorIs(t, x.Fill(&data.Batch{}, 0, 1), feed.ErrOption)
	require.ErrorIs(t, x.Fill(&data.Batch{}, -1, 0), feed.ErrOption)
	_, err := x.Recut(4)
	require.ErrorIs(t, err, feed.ErrOption)
	o.Samples = append(o.Samples, cache.Sample{Image: "none.png", Caption: "none.txt"})
	_, err = feed.New(t.Context(), o)
	require.ErrorIs(t, err, cache.ErrMissing)
	require.ErrorContains(t, err, "none.txt")
}
