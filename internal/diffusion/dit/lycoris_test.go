package dit_test

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/task/flowmatching"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// lycorisGoldens is written by scripts/make_lycoris_goldens.py.
var lycorisGoldens = filepath.Join(testdata, "lycoris")

func openLycoris(t *testing.T, name string) *safetensors.File {
	f, err := safetensors.Open(filepath.Join(lycorisGoldens, name+".safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// lycorisEngine trains the state with the samples of g.
func lycorisEngine(t *testing.T, g golden, start func(initial func(c *lora.Config) *lora.State) *lora.State) (*train.Engine, *data.Batch) {
	m, d := open(t, g.name)
	modules := lora.ModelOf("", m.Modules())
	state := start(func(c *lora.Config) *lora.State {
		p, err := lora.NewPlacement(c, modules)
		require.NoError(t, err)
		state, err := p.InitialState(m, 1)
		require.NoError(t, err)
		return state
	})
	e, err := train.NewEngine(t.Context(), testdevice.Open(t, backend.Options{}), m, state, train.EngineOptions{
		Loss: flowmatching.Loss(bounds(d, g.samples)), MaxTokens: 1, Adam: trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1},
	})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	var b data.Batch
	require.NoError(t, d.Arrays(&b, g.samples))
	return e, &b
}

// Ten steps on all linear layers have PEFT's gradients, losses and factors.
func TestLyCORIS(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]*lora.Config{"loha": lora.LoHa(), "lokr": lora.LoKr(false, 4)} {
		t.Run(name, func(t *testing.T) {
			f, g := openLycoris(t, name), moreGoldens["zimage"](t, "zimage")
			c.R, c.LoraAlpha, c.TargetModules = 2, 4, lora.ModuleSet{Pattern: lora.AllLinear}
			e, b := lycorisEngine(t, g, func(initial func(*lora.Config) *lora.State) *lora.State {
				s := initial(c)
				for _, x := range s.Values {
					for i := range x {
						x[i] = float32(0.2 * math.Sin(float64(i)))
					}
				}
				return s
			})
			losses, _ := floats(t, f, "losses")
			require.Len(t, losses, 10)
			for i, want := range losses {
				require.NoError(t, e.Accumulate(ctx, b, 0))
				for _, p := range e.Trained() {
					key := "grad." + p.Name[len("base_model.model."):]
					if i > 0 || !f.Has(key) {
						continue
					}
					want, _ := floats(t, f, key)
					got := make([]float32, len(want))
					require.NoError(t, e.Gradient(ctx, p.Name, got))
					for i := range got {
						got[i] /= float32(b.LossTokens)
					}
					requireNear(t, want, got, 1, 2e-5) // of the largest of each tensor; PyTorch in float32 is off by 1.5e-5
				}
				got, err := e.Update(ctx, b.LossTokens, i+1, 1e-3)
				require.NoError(t, err)
				require.InEpsilon(t, want, got.Loss, 2e-5, "step %d", i)
			}
		})
	}
}

// A file of the LyCORIS library gives its loss, and so does the file that is written.
func TestLyCORISFiles(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"loha", "lokr"} {
		t.Run(name, func(t *testing.T) {
			g := moreGoldens["zimage"](t, "zimage")
			want, _ := floats(t, openLycoris(t, name+"-lycoris-loss"), "loss")
			m, _ := open(t, g.name)
			modules := lora.ModelOf("", m.Modules())
			path := filepath.Join(lycorisGoldens, name+"-lycoris.safetensors")
			a, err := dialects.Open(path, modules, dialects.Options{})
			require.NoError(t, err)
			require.NotEqual(t, lora.MethodLoRA, a.Config.Method())
			var tensors []lora.Tensor
			for _, key := range a.Names() {
				x, _ := a.Tensor(key)
				tensors = append(tensors, lora.Tensor{Key: key, Tensor: x})
			}
			written := filepath.Join(t.TempDir(), "x.safetensors")
			require.NoError(t, dialects.Write(written, dialects.Lycoris, modules, a.Config, tensors))
			require.ErrorIs(t, dialects.Write(written+"2", dialects.Diffusers, modules, a.Config, tensors), lora.ErrUnsupported)
			for _, file := range []string{path, written} {
				e, b := lycorisEngine(t, g, func(func(*lora.Config) *lora.State) *lora.State {
					s, err := dialects.LoadState(file, m, modules, lora.CheckOptions{})
					require.NoError(t, err)
					return s
				})
				require.NoError(t, e.Accumulate(ctx, b, 0))
				got, err := e.Update(ctx, b.LossTokens, 1, 1e-3)
				require.NoError(t, err)
				require.InEpsilon(t, float64(want[0]), got.Loss, 1e-5, file)
			}
		})
	}
}
