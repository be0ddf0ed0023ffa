package train_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestQuantizedTraces repeats runs of PEFT on quantised models, most of which
// bitsandbytes has quantised: LoRA, and DoRA with blocks that begin amid rows.
func TestQuantizedTraces(t *testing.T) {
	for _, name := range []string{"nf4-double", "nf4-odd", "fp8-block", "gptq-4", "awq"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("../../testdata/quant", name)
			recorded{name, dir, filepath.Join(dir, "train")}.repeat(t)
		})
	}
}

// A step on weights that were quantised on load is that on the numbers that
// their blocks stand for.
func TestQuantizedSteps(t *testing.T) {
	ctx := context.Background()
	const base = "../../testdata/lm/llama/model"
	dirs, err := filepath.Glob("../../testdata/lm/llama/train/*")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	batches := readBatches(t, filepath.Join(dirs[0], "batches.safetensors"))
	run := func(m *model.Model, checkpointing bool) (steps []train.Step, gradients map[string][]float32, memory train.Memory) {
		a, err := lora.Load(filepath.Join(dirs[0], "init"))
		require.NoError(t, err)
		defer a.Close()
		p, err := lora.NewPlacement(a.Config, lora.ModelOf(m.Config.ModelType, m.Modules()))
		require.NoError(t, err)
		s, err := p.StateOf(a, m)
		require.NoError(t, err)
		e, err := train.NewEngine(ctx, testdevice.Open(t, backend.Options{}), m, s, train.EngineOptions{
			MaxTokens: len(batches[0].Tokens()), Adam: trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, MaxGradNorm: 1}, Checkpointing: checkpointing,
		})
		require.NoError(t, err)
		defer e.Close()
		gradients = map[string][]float32{}
		for i := range 3 {
			require.NoError(t, e.Accumulate(ctx, batches[i], 0))
			if i == 1 {
				for _, x := range e.Trained() {
					gradients[x.Name] = make([]float32, len(s.Values[x.Name]))
					require.NoError(t, e.Gradient(ctx, x.Name, gradients[x.Name]))
				}
			}
			step, err := e.Update(ctx, batches[i].LossTokens, i+1, 1e-2)
			require.NoError(t, err)
			steps = append(steps, step)
		}
		return steps, gradients, e.Memory()
	}
	for _, method := range []quant.Method{quant.Int8, quant.Bit4, quant.Fp8} {
		t.Run(string(method), func(t *testing.T) {
			m, err := model.Open(base)
			require.NoError(t, err)
			defer m.Close()
			require.NoError(t, m.Quantize(method, nil))
			plain, err := model.Open(dequantized(t, m))
			require.NoError(t, err)
			defer plain.Close()
			want, wantGradients, _ := run(plain, false)
			for _, checkpointing := range []bool{false, true} {
				got, gradients, memory := run(m, checkpointing)
				for i := range want {
					require.InDelta(t, want[i].Loss, got[i].Loss, 2e-5)
					require.InEpsilon(t, want[i].GradNorm, got[i].GradNorm, 1e-4)
				}
				for name, g := range wantGradients {
					require.LessOrEqual(t, relative(gradients[name], g), 1e-4, name)
				}
				require.Equal(t, m.Quantization().Bytes, memory.Quantized)
				require.GreaterOrEqual(t, memory.Total(), memory.Quantized)
				require.Contains(t, memory.String(), "quantized "+bytesize.Binary(memory.Quantized))
			}
		})
	}
}

// dequantized is a checkpoint with the numbers that the weights of m stand for.
func dequantized(t *testing.T, m *model.Model) string {
	dir := t.TempDir()
	var entries []safetensors.Entry
	for _, name := range m.Used() {
		w, err := m.Weight(name)
		require.NoError(t, err)
		values, err := w.Float32s()
		require.NoError(t, err)
		entries = append(entries, safetensors.Entry{Name: name, DType: safetensors.F32, Shape: w.Shape, Data: tensor.BytesOf(values)})
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), entries, nil))
	raw, err := os.ReadFile(filepath.Join(m.Dir, "config.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o666))
	return dir
}

// What begins by changing the weights of the base cannot have them quantised.
func TestQuantizedBaseStaysAsItIs(t *testing.T) {
	m, err := model.Open("../../testdata/lm/llama/model")
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Quantize(quant.Int8, nil))
	c := lora.DefaultConfig()
	c.R, c.LoraAlpha = 2, 4
	c.InitLoraWeights = "pissa"
	p, err := lora.NewPlacement(c, lora.ModelOf(m.Config.ModelType, m.Modules()))
	require.NoError(t, err)
	_, err = p.InitialState(m, 1)
	require.ErrorIs(t, err, lora.ErrUnsupported)
	require.ErrorContains(t, err, "is quantised")
}

// A run on a quantised base says so, and cannot be resumed on another one.
func TestQuantizedRun(t *testing.T) {
	dir := t.TempDir()
	sets := []string{"quantize=nf4", "save_steps=3"}
	c := configure(t, dir, countingRows(40), sets...)
	var notes []string
	r, err := train.New(context.Background(), c, train.Observer{Note: func(text string) { notes = append(notes, text) }})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	require.Contains(t, strings.Join(notes, "\n"), "quantize nf4: 14 linear layers")
	s, err := r.Train(context.Background())
	require.NoError(t, err)
	require.Equal(t, 6, s.Steps)
	_, err = lora.Load(s.Adapter)
	require.NoError(t, err)
	r.Close() // another run waits for its folder

	again := func(sets ...string) error {
		r, err := train.New(context.Background(), configure(t, dir, countingRows(40), append(sets, "save_steps=3", "resume=latest")...), train.Observer{})
		if err == nil {
			r.Close()
		}
		return err
	}
	require.NoError(t, again("quantize=nf4"))
	require.ErrorContains(t, again("quantize=int8"), "quantize")
	require.ErrorContains(t, again(), "quantize")
}
