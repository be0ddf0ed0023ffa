package single_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/single"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

const testdata = "../../../testdata/dit"

// write writes a file, with a prefix before all names.
func write(t testing.TB, dir, prefix string, tensors []safetensors.Entry) string {
	path := filepath.Join(dir, "model.safetensors")
	tensors = slices.Clone(tensors)
	for i := range tensors {
		tensors[i].Name = prefix + tensors[i].Name
	}
	require.NoError(t, safetensors.WriteFile(path, tensors, map[string]string{"format": "pt"}))
	return path
}

// read reads the tensors of a transformer of diffusers.
func read(t testing.TB, dir string) []safetensors.Entry {
	set, err := weights.OpenDiffusion(dir)
	require.NoError(t, err)
	defer set.Close()
	var all []safetensors.Entry
	for _, name := range set.Names() {
		v, err := set.Lookup(name)
		require.NoError(t, err)
		e := safetensors.Entry{Name: name, DType: v.DType, Shape: slices.Clone(v.Shape)}
		require.NoError(t, v.WithBytes(func(data []byte) error { e.Data = slices.Clone(data); return nil }))
		all = append(all, e)
	}
	return all
}

// bytesOf are those of a weight.
func bytesOf(t testing.TB, m *model.Model, name string) []byte {
	w, err := m.Weight(name)
	require.NoError(t, err)
	if w.Fill == nil {
		return w.Source.Bytes
	}
	out := make([]byte, w.Size())
	require.NoError(t, w.Fill(func(at int, data []byte) error { copy(out[at:], data); return nil }))
	return out
}

// velocity is what a transformer gives for a random sample.
func velocity(t testing.TB, m *model.Model) []float32 {
	f, r := m.Config.Family.(dit.Transformer), rand.New(rand.NewPCG(1, 2))
	numbers := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(r.NormFloat64())
		}
		return out
	}
	space := f.Space()
	side := 2 * space.Multiple
	s := dit.Sample{Latent: dit.Latent{Channels: space.Channels, Frames: 1, Height: side, Width: side, Values: numbers(space.Channels * side * side)}, Timestep: 700, Guidance: 3}
	s.Prompt = dit.Prompt{Features: space.Text, Values: numbers(5 * space.Text), Pooled: numbers(space.Pooled)}
	ctx, samples := context.Background(), []dit.Sample{s}
	run := host.Open(testdevice.Open(t, backend.Options{}), m)
	defer run.Close()
	slot, err := run.NewSlot(nil)
	require.NoError(t, err)
	defer slot.Free()
	var b data.Batch
	require.NoError(t, f.Arrays(&b, samples))
	results, err := run.Compute(ctx, slot, engine.Spec{Name: "velocity", Bounds: f.Bounds(1, s), Build: func(b *nn.Builder, p *graph.Program) {
		p.Result("velocity", m.Build(b).Output(b, dit.Velocity))
	}}, &b, b.Longest())
	require.NoError(t, err)
	out, err := results.Get(ctx, "velocity")
	require.NoError(t, err)
	require.Len(t, out, len(s.Latent.Values))
	return out
}

// Files of all forms are the model of the folder, bit for bit, and so is what they give.
// Their config.json says what shapes do not: heads of 16 are of no model that is known.
func TestForms(t *testing.T) {
	for name, original := range map[string]bool{"flux": true, "flux2": true, "zimage": true, "qwenimage": false, "qwenimage21": true, "kandinsky5": false} {
		t.Run(name, func(t *testing.T) {
			from := filepath.Join(testdata, name, "transformer")
			folder, err := model.Open(from)
			require.NoError(t, err)
			defer folder.Close()
			want, tensors := velocity(t, folder), read(t, from)
			config := filepath.Join(from, "config.json")

			forms := [][]safetensors.Entry{tensors}
			if original {
				forms = append(forms, released(t, folder.Config.Architecture, tensors))
			}
			for _, form := range forms {
				for _, prefix := range []string{"", "diffusion_model.", "model.diffusion_model."} {
					path := write(t, t.TempDir(), prefix, form)
					m, err := single.Open(path, config)
					require.NoError(t, err)
					require.Equal(t, folder.Config, m.Config)
					require.ElementsMatch(t, folder.Used(), m.Used())
					for _, tensor := range m.Used() {
						require.Equal(t, bytesOf(t, folder, tensor), bytesOf(t, m, tensor), tensor)
					}
					require.NoError(t, m.Close())
				}
			}
			dir := t.TempDir()
			raw, err := os.ReadFile(config)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o666))
			m, err := single.Open(write(t, dir, "", forms[len(forms)-1]), "") // beside it
			require.NoError(t, err)
			defer m.Close()
			require.Equal(t, want, velocity(t, m))
		})
	}
}

// drawn is a model of a class: of heads as in those that were published, and narrow.
func drawn(t *rapid.T) (class string, config map[string]any) {
	layers, heads := rapid.IntRange(1, 3).Draw(t, "layers"), rapid.IntRange(1, 2).Draw(t, "heads")
	text, guided := 4*rapid.IntRange(1, 4).Draw(t, "text"), rapid.Bool().Draw(t, "guidance")
	channels := 4 * rapid.IntRange(1, 4).Draw(t, "channels")
	switch class = rapid.SampledFrom([]string{"Flux", "Flux2", "QwenImage", "QwenImage21", "ZImage", "Kandinsky5"}).Draw(t, "class"); class {
	case "Flux", "Flux2":
		config = map[string]any{"num_layers": layers, "num_single_layers": heads + 1, "num_attention_heads": heads, "attention_head_dim": 128,
			"in_channels": channels, "joint_attention_dim": text, "guidance_embeds": guided}
		if class == "Flux" {
			config["pooled_projection_dim"] = text + 1
		} else {
			config["mlp_ratio"], config["timestep_guidance_channels"] = []float64{2, 3, 3.5}[layers-1], 32*layers
		}
	case "QwenImage":
		config = map[string]any{"num_layers": layers, "num_attention_heads": heads, "attention_head_dim": 128, "in_channels": channels,
			"out_channels": channels / 4, "joint_attention_dim": text, "use_additional_t_cond": guided, "use_layer3d_rope": guided}
	case "QwenImage21":
		config = map[string]any{"num_layers": layers, "num_attention_heads": heads, "attention_head_dim": 128, "in_channels": channels,
			"out_channels": channels, "context_in_dim": text, "mlp_ratio": layers}
	case "ZImage":
		config = map[string]any{"dim": 128 * heads, "n_heads": heads, "n_kv_heads": heads, "n_layers": layers, "n_refiner_layers": heads,
			"in_channels": channels, "cap_feat_dim": text}
	default:
		config = map[string]any{"model_dim": 64 * heads, "ff_dim": 32 * layers, "time_dim": 16 * heads, "in_text_dim": text, "in_text_dim2": text + 1,
			"in_visual_dim": channels, "out_visual_dim": channels, "visual_cond": guided, "num_text_blocks": heads, "num_visual_blocks": layers}
	}
	class += map[bool]string{true: "Transformer3DModel", false: "Transformer2DModel"}[class == "Kandinsky5"]
	config["_class_name"] = class
	return class, config
}

// Shapes say all of the configuration that there is to say, and all weights are found
// again, in each type.
func TestShapesTellTheConfiguration(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		class, config := drawn(r)
		c, tensors := fresh(t, config, rapid.SampledFrom([]safetensors.DType{safetensors.F32, safetensors.F16, safetensors.BF16}).Draw(r, "type"))
		form := tensors
		if _, ok := releases[class]; ok && rapid.Bool().Draw(r, "released") {
			form = released(t, class, tensors)
		}
		dir, err := os.MkdirTemp(t.TempDir(), "")
		require.NoError(r, err)
		m, err := single.Open(write(t, dir, rapid.SampledFrom([]string{"", "diffusion_model.", "model.diffusion_model."}).Draw(r, "prefix"), form), "")
		require.NoError(r, err)
		defer m.Close()
		require.Equal(r, c.Family, m.Config.Family)
		require.Len(r, m.Used(), len(tensors))
		for _, x := range tensors {
			require.Equal(r, x.Data, bytesOf(t, m, x.Name), x.Name)
		}
	})
}

// fresh makes the tensors of a model that a configuration describes.
func fresh(t testing.TB, config map[string]any, d safetensors.DType) (*model.Config, []safetensors.Entry) {
	c, err := model.ParseConfig(encode(t, config))
	require.NoError(t, err)
	a := &asked{shape: map[string][]int{}}
	b := nn.NewBuilder(graph.New(), a, nn.Options{OtherBounds: 2})
	c.Family.Build(c, b)
	require.NoError(t, b.G.Err())
	to, err := tensor.ParseDType(d.String())
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(3, 4))
	var tensors []safetensors.Entry
	for _, name := range a.names {
		n := 1
		for _, size := range a.shape[name] {
			n *= size
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = r.Float32()
		}
		x := safetensors.Entry{Name: name, DType: d, Shape: a.shape[name], Data: make([]byte, to.Bytes(n))}
		require.NoError(t, tensor.FromFloat32(x.Data, values, to))
		tensors = append(tensors, x)
	}
	return c, tensors
}

// asked is a checkpoint that writes down what it is asked for.
type asked struct {
	names []string
	shape map[string][]int
}

func (a *asked) Has(string) bool { return true }

func (a *asked) Weight(string) (nn.Weight, error) { return nn.Weight{}, nn.ErrMissing }

// Blank implements nn.Blank.
func (a *asked) Blank(name string, shape []int) nn.Weight {
	if a.shape[name] == nil {
		a.names = append(a.names, name)
	}
	a.shape[name] = slices.Clone(shape)
	return nn.Weight{DType: tensor.BF16, Shape: shape}
}
