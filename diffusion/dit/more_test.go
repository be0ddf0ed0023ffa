package dit_test

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/dev/testdevice"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/train"
)

// reader reads the samples of a case whose files have a form of their own.
type reader func(t testing.TB, name string) golden

// moreGoldens are the cases of the other architectures. Those in more are by diffusers as
// well, of other sizes: with controls of several sizes, frames that a mask says of where
// they are known, or modulations that are one for all tokens.
var moreGoldens = map[string]reader{
	"zimage": readZImage, "flux2": readGolden, "qwenimage21": readQwenImage21, "kandinsky5": readKandinsky,
	"more/flux2-references": readGolden, "more/qwen21-controls": readQwenImage21, "more/qwen21-uniform": readQwenImage21,
	"more/kandinsky5-frames": readKandinsky,
}

func TestMoreGoldens(t *testing.T) {
	for name, read := range moreGoldens {
		t.Run(name, func(t *testing.T) {
			g := read(t, name)
			m, f := open(t, name)
			rows := run(t, m, nil, g.samples)
			switch {
			case g.tensors.Has("velocity"): // latents
				got, err := f.Unpack(rows, len(g.samples), g.samples[0].Latent)
				require.NoError(t, err)
				want, _ := g.floats(t, "velocity")
				for i, v := range got {
					requireNear(t, part(want, len(got), i), v, 1e-4, 1e-5)
				}
			case g.tensors.Has("output_f32"): // latents whose channels come last
				got, err := f.Unpack(rows, len(g.samples), g.samples[0].Latent)
				require.NoError(t, err)
				want, _ := g.floats(t, "output_f32")
				for i, v := range got {
					requireNear(t, part(want, len(got), i), turned(v, g.samples[i].Latent.Channels), 1e-4, 1e-5)
				}
			default: // tokens
				want, _ := g.floats(t, "output")
				requireNear(t, want, rows, 1e-4, 1e-5)
			}
		})
	}
}

// TestMoreTraces is TestTraces of these cases.
func TestMoreTraces(t *testing.T) {
	for name, read := range moreGoldens {
		for _, checkpointing := range []bool{false, true} {
			if strings.HasPrefix(name, "more/") {
				continue
			}
			t.Run(name+map[bool]string{true: "/checkpointing"}[checkpointing], func(t *testing.T) {
				repeat(t, read(t, name), filepath.Join(testdata, name, "train"), checkpointing)
			})
		}
	}
}

// A sample's velocity does not depend on its company: on others and on how long their
// texts are. On how many they are it depends as far as products of other sizes round
// otherwise, to which embeddings of large timesteps are sensitive.
func TestMoreCompany(t *testing.T) {
	for name, read := range moreGoldens {
		t.Run(name, func(t *testing.T) {
			g := read(t, name)
			m, _ := open(t, name)
			first, second := g.samples[0], g.samples[1]
			want := run(t, m, nil, []dit.Sample{first, second})
			got := run(t, m, nil, []dit.Sample{longer(second), second})
			requireNear(t, part(want, 2, 1), part(got, 2, 1), 1e-4, 1e-6)
			got = run(t, m, nil, []dit.Sample{first, longer(first)})
			requireNear(t, part(want, 2, 0), part(got, 2, 0), 1e-4, 1e-6)
			requireNear(t, part(want, 2, 0), run(t, m, nil, []dit.Sample{first}), 1e-4, 3e-6)
		})
	}
}

// longer is a sample with a text that is three times as long.
func longer(s dit.Sample) dit.Sample {
	p := &s.Prompt
	tokens := len(p.Values) / p.Features
	p.Values = append(append(append([]float32(nil), p.Values...), p.Values...), p.Values...)
	if p.Mask != nil {
		p.Mask = append(append([]bool(nil), p.Mask...), make([]bool, 2*tokens)...)
		for i := range tokens {
			p.Mask[len(p.Mask)-1-2*i] = true
		}
	}
	if p.Slots != nil {
		p.Slots = append(append([]bool(nil), p.Slots...), make([]bool, 2*tokens)...)
	}
	return s
}

// All linear layers are trained, those of the modulations too.
func TestMoreAllLinear(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"flux2", "zimage", "qwenimage21", "kandinsky5"} {
		t.Run(name, func(t *testing.T) {
			f, err := safetensors.Open(filepath.Join(testdata, "more", name+"-all-linear", "golden.safetensors"))
			require.NoError(t, err)
			defer f.Close()
			g := moreGoldens[name](t, name)
			m, d := open(t, name)
			c := lora.DefaultConfig()
			c.R, c.LoraAlpha, c.TargetModules = 2, 4, lora.ModuleSet{Pattern: lora.AllLinear}
			p, err := lora.NewPlacement(c, lora.ModelOf("", m.Modules()))
			require.NoError(t, err)
			state, err := p.Begin(m, 1)
			require.NoError(t, err)
			require.Len(t, f.Names(), len(state.Values)+1)
			for _, x := range state.Values {
				for i := range x {
					x[i] = float32(0.1 * math.Sin(float64(i)))
				}
			}
			e, err := train.NewEngine(ctx, testdevice.Open(t, backend.Options{}), m, state, train.EngineOptions{
				Task: train.FlowMatching{Axes: bounds(d, g.samples)}, MaxTokens: 1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1,
			})
			require.NoError(t, err)
			defer e.Close()
			var b data.Batch
			require.NoError(t, d.Arrays(&b, g.samples))
			losses, _ := floats(t, f, "losses")
			for i, want := range losses {
				require.NoError(t, e.Accumulate(ctx, &b, 0))
				got, err := e.Update(ctx, b.LossTokens, i+1, 1e-3)
				require.NoError(t, err)
				require.InEpsilon(t, want, got.Loss, 1e-5)
			}
			state, err = e.State(ctx)
			require.NoError(t, err)
			for key, got := range state.Values {
				want, _ := floats(t, f, key)
				requireNear(t, want, got, 2e-4, 2e-3)
			}
		})
	}
}
