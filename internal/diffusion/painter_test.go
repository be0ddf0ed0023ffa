package diffusion_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/safetensors"
)

const testdata = "../../testdata/dit"

// tensors are those of a golden file.
type tensors struct {
	t testing.TB
	f *safetensors.File
}

func readTensors(t testing.TB, folder string) tensors {
	f, err := safetensors.Open(filepath.Join(testdata, folder, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return tensors{t, f}
}

// part is part i of the outer axis of a tensor.
func part[T safetensors.Element](g tensors, name string, i int) []T {
	x := all[T](g, name)
	n := len(x) / g.shape(name)[0]
	return x[i*n : (i+1)*n : (i+1)*n]
}

// all is a whole tensor.
func all[T safetensors.Element](g tensors, name string) []T {
	v, err := g.f.Lookup(name)
	require.NoError(g.t, err)
	x, err := safetensors.As[T](v)
	require.NoError(g.t, err)
	return x
}

func (g tensors) shape(name string) []int {
	v, err := g.f.Lookup(name)
	require.NoError(g.t, err)
	return v.Shape
}

// prompt is the text of sample i, of tensors that begin with a name.
func (g tensors) prompt(before string, i int) dit.Prompt {
	p := dit.Prompt{Features: g.shape(before + "prompt_embeds")[2], Values: part[float32](g, before+"prompt_embeds", i)}
	if name := before + "prompt_embeds_mask"; g.f.Has(name) {
		for _, m := range part[int64](g, name, i) {
			p.Mask = append(p.Mask, m != 0)
		}
	}
	if g.f.Has("pooled_prompt_embeds") {
		p.Pooled = part[float32](g, "pooled_prompt_embeds", i)
	}
	return p
}

// pipelineOf is a pipeline whose parts are those of cases.
func pipelineOf(t testing.TB, parts map[string]string) *diffusion.Pipeline {
	dir := t.TempDir()
	for part, name := range parts {
		require.NoError(t, os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(testdata, name, part))))
	}
	p, err := diffusion.Open(dir)
	require.NoError(t, err)
	return p
}

// painter is one with the transformer of a pipeline, and a slot without an adapter.
func painter(t testing.TB, pipeline *diffusion.Pipeline) (*diffusion.Painter, *engine.Slot, backend.Device) {
	m, _, err := pipeline.OpenTransformer()
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	schedule, err := pipeline.Schedule()
	require.NoError(t, err)
	dev := testdevice.Open(t, backend.Options{})
	r := host.Open(dev, m)
	t.Cleanup(r.Close)
	slot, err := r.NewSlot(nil)
	require.NoError(t, err)
	t.Cleanup(slot.Free)
	p, err := diffusion.NewPainter(r, schedule, pipeline.Style(m.Config))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p, slot, dev
}

// Latents are those of the pipelines of diffusers, step by step.
func TestSampling(t *testing.T) {
	for _, c := range []struct {
		transformer, vae, folder string
		scale, told              float64
	}{{"flux", "vae-flux", "sampling-flux", 1, 3.5}, {"qwenimage", "vae-qwen", "sampling-qwenimage", 4, 1}} {
		t.Run(c.folder, func(t *testing.T) {
			g := readTensors(t, c.folder)
			pipeline := pipelineOf(t, map[string]string{
				diffusion.Transformer: c.transformer, diffusion.VAE: c.vae, diffusion.Scheduler: c.folder,
			})
			p, slot, dev := painter(t, pipeline)
			family := family(t, pipeline)
			canvas, err := pipeline.Canvas(p.Space())
			require.NoError(t, err)
			require.NoError(t, canvas.Open(dev, vae.Options{}))
			defer canvas.Close()
			samples := g.shape("start")[0]
			for i := range samples {
				const side = 8
				like := dit.Latent{Channels: p.Space().Channels, Frames: 1, Height: side, Width: side}
				unpack := func(rows []float32) []float32 {
					like.Values = make([]float32, len(rows))
					x, err := family.Unpack(rows, 1, like)
					require.NoError(t, err)
					return x[0]
				}
				d := diffusion.Drawing{
					Prompt: g.prompt("", i), Height: side, Width: side, Steps: 4,
					Scale: &c.scale, Told: &c.told, Start: unpack(part[float32](g, "start", i)),
				}
				if g.f.Has("negative_prompt_embeds") {
					n := g.prompt("negative_", i)
					d.Negative = &n
				}
				steps := 0
				d.Each = func(step, of int, latent []float32) error {
					steps++
					assert.Equal(t, 4, of)
					near(t, unpack(part[float32](g, "latents."+strconv.Itoa(step-1), i)), latent, 1e-5)
					return nil
				}
				latent, err := p.Draw(context.Background(), slot, d)
				require.NoError(t, err)
				assert.Equal(t, 4, steps)

				picture, err := canvas.Paint(context.Background(), latent)
				require.NoError(t, err)
				for j, x := range picture.Values {
					picture.Values[j] = min(max(x/2+0.5, 0), 1)
				}
				near(t, part[float32](g, "image", i), picture.Values, 2e-5)
			}
		})
	}
}

func family(t testing.TB, p *diffusion.Pipeline) dit.Transformer {
	dir, err := p.Folder(diffusion.Transformer)
	require.NoError(t, err)
	c, err := model.ReadConfig(dir)
	require.NoError(t, err)
	return c.Family.(dit.Transformer)
}

// near holds values to others, by the largest of these.
func near(t testing.TB, want, got []float32, relative float64) {
	require.Len(t, got, len(want))
	largest, off := 0.0, 0.0
	for i := range want {
		largest = max(largest, abs(want[i]))
		off = max(off, abs(want[i]-got[i]))
	}
	assert.LessOrEqual(t, off, relative*largest)
}

func abs(x float32) float64 { return float64(max(x, -x)) }

// What cannot be drawn is refused before the first step.
func TestWrongDrawings(t *testing.T) {
	p, slot, _ := painter(t, pipelineOf(t, map[string]string{diffusion.Transformer: "flux"}))
	g := readTensors(t, "sampling-flux")
	good := func() diffusion.Drawing {
		return diffusion.Drawing{Prompt: g.prompt("", 0), Height: 4, Width: 4, Steps: 1, Each: func(int, int, []float32) error {
			return errStopped
		}}
	}
	nan := math.NaN()
	for says, change := range map[string]func(d *diffusion.Drawing){
		"found 1001 steps, expected 1 to 1000":                    func(d *diffusion.Drawing) { d.Steps = 1001 },
		"found a latent of 3×4, expected multiples of 2":          func(d *diffusion.Drawing) { d.Width = 3 },
		"found a latent of 4×0":                                   func(d *diffusion.Drawing) { d.Height = 0 },
		"found guidance NaN and 3.5, expected numbers":            func(d *diffusion.Drawing) { d.Scale = &nan },
		"found a cap of guidance of -1 until 0":                   func(d *diffusion.Drawing) { d.Cap = -1 },
		"found a cap of guidance of 0 until NaN":                  func(d *diffusion.Drawing) { d.Until = nan },
		"found 3 values to start from, expected 64 for 4×1×4×4":   func(d *diffusion.Drawing) { d.Start = make([]float32, 3) },
		"text: found 7 features of a token, expected 32":          func(d *diffusion.Drawing) { d.Prompt.Features = 7 },
		"found 5 pooled features, expected 24":                    func(d *diffusion.Drawing) { d.Prompt.Pooled = d.Prompt.Pooled[:5] },
		"found 0 values, expected 32 for each of 1 token or more": func(d *diffusion.Drawing) { d.Prompt.Values = nil },
	} {
		d := good()
		change(&d)
		_, err := p.Draw(context.Background(), slot, d)
		require.Error(t, err)
		assert.ErrorContains(t, err, says)
		assert.True(t, errors.Is(err, diffusion.ErrDrawing) || errors.Is(err, dit.ErrSample), "%v", err)
	}
	_, err := p.Draw(context.Background(), slot, good())
	require.ErrorIs(t, err, errStopped)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = p.Draw(ctx, slot, good())
	assert.ErrorIs(t, err, context.Canceled)
}

var errStopped = errors.New("stopped")

// Pictures of other sizes and texts of other lengths are those of painters of their own,
// whatever was drawn before.
func TestPainterIsUsedAgain(t *testing.T) {
	pipeline := pipelineOf(t, map[string]string{diffusion.Transformer: "qwenimage"})
	g := readTensors(t, "sampling-qwenimage")
	away := g.prompt("negative_", 0)
	long := g.prompt("", 0)
	for len(long.Mask) < 40 {
		long.Values, long.Mask = append(long.Values, g.prompt("", 1).Values...), append(long.Mask, g.prompt("", 1).Mask...)
	}
	drawings := []diffusion.Drawing{
		{Prompt: g.prompt("", 0), Height: 4, Width: 8, Steps: 2, Seed: 1},
		{Prompt: long, Height: 8, Width: 4, Steps: 2, Seed: 2, Negative: &away},
		{Prompt: g.prompt("", 1), Height: 2, Width: 4, Steps: 2, Seed: 3},
		{Prompt: g.prompt("", 0), Height: 4, Width: 8, Steps: 2, Seed: 1},
	}
	shared, slot, _ := painter(t, pipeline)
	for _, d := range drawings {
		got, err := shared.Draw(context.Background(), slot, d)
		require.NoError(t, err)
		alone, other, _ := painter(t, pipeline)
		want, err := alone.Draw(context.Background(), other, d)
		require.NoError(t, err)
		near(t, want.Values, got.Values, 1e-5)
	}
}

// Every transformer is drawn with, with guidance where its pipeline has it.
func TestEveryTransformerDraws(t *testing.T) {
	for _, name := range []string{"flux", "flux2", "kandinsky5", "qwenimage", "qwenimage-edit", "qwenimage21", "zimage"} {
		t.Run(name, func(t *testing.T) {
			p, slot, _ := painter(t, pipelineOf(t, map[string]string{diffusion.Transformer: name}))
			space := p.Space()
			text := func(tokens int) dit.Prompt {
				x := dit.Prompt{Features: space.Text, Values: make([]float32, tokens*space.Text), Pooled: make([]float32, space.Pooled)}
				flow.NewDraw(uint64(tokens), 0, 0).Noise(x.Values)
				return x
			}
			away := text(3)
			size, scale := 4*space.Multiple, 2.0
			d := diffusion.Drawing{Prompt: text(7), Negative: &away, Scale: &scale, Height: size, Width: 2 * size, Steps: 2}
			x, err := p.Draw(context.Background(), slot, d)
			require.NoError(t, err)
			require.Len(t, x.Values, space.Channels*size*2*size)
			d.Negative = nil
			plain, err := p.Draw(context.Background(), slot, d)
			require.NoError(t, err)
			require.NotEqual(t, x.Values, plain.Values)
		})
	}
}
