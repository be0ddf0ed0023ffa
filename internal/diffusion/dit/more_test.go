package dit_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
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
	for _, name := range []string{"flux2", "zimage", "qwenimage21", "kandinsky5"} {
		t.Run(name, func(t *testing.T) {
			trainAll(t, moreGoldens[name](t, name), filepath.Join("more", name+"-all-linear"), 2e-3, func(want, got float64) { require.InEpsilon(t, want, got, 1e-5) })
		})
	}
}
