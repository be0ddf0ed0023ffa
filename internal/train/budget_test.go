package train_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/train/config"
)

// writeModel writes a model of six layers whose activations outweigh all else:
// random weights in bf16 under the vocabulary of the tiny one.
func writeModel(t *testing.T, dir string) string {
	const hidden, inter, kv, layers = 192, 512, 96, 6
	raw, err := os.ReadFile(filepath.Join(tinyModel, "config.json"))
	require.NoError(t, err)
	var c map[string]any
	require.NoError(t, json.Unmarshal(raw, &c))
	vocab := int(c["vocab_size"].(float64))
	for key, v := range map[string]any{"hidden_size": hidden, "intermediate_size": inter, "num_hidden_layers": layers,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": hidden / 4, "max_position_embeddings": 1024, "dtype": "bfloat16"} {
		c[key] = v
	}
	raw, err = json.Marshal(c)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o666))
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		if raw, err := os.ReadFile(filepath.Join(tinyModel, name)); err == nil {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), raw, 0o666))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	var entries []safetensors.Entry
	add := func(name string, scale float64, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		data := make([]byte, 2*n)
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(scale * random.NormFloat64())
			if len(shape) == 1 {
				values[i] = 1
			}
		}
		require.NoError(t, tensor.FromFloat32(data, values, tensor.BF16))
		entries = append(entries, safetensors.Entry{Name: name + ".weight", DType: safetensors.BF16, Shape: shape, Data: data})
	}
	add("model.embed_tokens", 1, vocab, hidden)
	add("lm_head", 1/math.Sqrt(hidden), vocab, hidden)
	add("model.norm", 1, hidden)
	for i := range layers {
		in := func(name string, out, cols int) {
			add(fmt.Sprintf("model.layers.%d.%s_proj", i, name), 1/math.Sqrt(float64(cols)), out, cols)
		}
		in("self_attn.q", hidden, hidden)
		in("self_attn.k", kv, hidden)
		in("self_attn.v", kv, hidden)
		in("self_attn.o", hidden, hidden)
		in("mlp.gate", inter, hidden)
		in("mlp.up", inter, hidden)
		in("mlp.down", hidden, inter)
		add(fmt.Sprintf("model.layers.%d.input_layernorm", i), 1, hidden)
		add(fmt.Sprintf("model.layers.%d.post_attention_layernorm", i), 1, hidden)
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), entries, map[string]string{"format": "pt"}))
	return dir
}

// longRows are documents of some hundred tokens.
func longRows(n int) []string {
	var rows []string
	for i := range n {
		rows = append(rows, fmt.Sprintf(`{"text": %q}`, strings.Repeat(fmt.Sprintf("row %d of many, ", i), 40)))
	}
	return rows
}

// budgeted is a short run of the model with more settings.
func budgeted(t *testing.T, model string, sets ...string) *config.Config {
	return configure(t, t.TempDir(), longRows(24), append([]string{"model=" + model, "batch_size=4", "steps=2", "save_steps=0",
		"data.max_length=200", "learning_rate=1e-3", "adapter.r=8", "log.tensorboard=false"}, sets...)...)
}

// tried is what came of a run.
type tried struct {
	fit    train.Fit
	memory train.Memory
	losses []float64
	hash   string
	notes  []string
}

func try(t *testing.T, c *config.Config) (tried, error) {
	var got tried
	r, err := train.New(context.Background(), c, train.Observer{Note: func(s string) { got.notes = append(got.notes, s) }})
	if err != nil {
		return got, err
	}
	defer r.Close()
	s, err := r.Train(context.Background())
	require.NoError(t, err)
	got.fit, got.memory, got.hash = s.Fit, s.Memory, adapterHash(t, c.OutputDir, train.AdapterDir)
	records, err := events.ReadMetrics(filepath.Join(c.OutputDir, "metrics.jsonl"))
	require.NoError(t, err)
	for _, x := range records {
		if v, ok := x.Value(events.Loss); ok {
			got.losses = append(got.losses, v)
		}
	}
	return got, nil
}

// TestMemoryBudget: less memory takes more recomputed layers, each time as few
// as do, with the same bits; then micro-batches are cut.
func TestMemoryBudget(t *testing.T) {
	train.FixProcessMemory(t, 8<<20)
	model := writeModel(t, filepath.Join(t.TempDir(), "model"))
	free, err := try(t, budgeted(t, model))
	require.NoError(t, err)
	require.Zero(t, free.fit.Recomputed)
	require.Equal(t, 6, free.fit.Layers)
	require.Greater(t, free.memory.Activations, free.memory.Resident()/2, "else the rest of this test shows nothing")
	layer := free.memory.Activations / 7

	last := -1
	steps := []int64{-2 * layer, layer, 3 * layer}
	if os.Getenv("LORAFUSE_LONG") == "" {
		steps = steps[2:]
	}
	for _, less := range steps {
		memory := free.memory.Resident() - less
		got, err := try(t, budgeted(t, model, fmt.Sprintf("memory=%d", memory)))
		require.NoError(t, err)
		require.LessOrEqual(t, got.memory.Resident(), memory)
		require.Greater(t, got.fit.Recomputed, last)
		require.Equal(t, 1, got.fit.Cut)
		require.Equal(t, free.losses, got.losses, got.fit.String())
		require.Equal(t, free.hash, got.hash, got.fit.String())
		require.Contains(t, strings.Join(got.notes, "\n"), "plan     "+got.fit.String())
		last = got.fit.Recomputed
	}

	all, err := try(t, budgeted(t, model, "activation_checkpointing=true"))
	require.NoError(t, err)
	require.Equal(t, 6, all.fit.Recomputed)
	require.Equal(t, free.hash, all.hash)
	memory := all.memory.Resident() - all.memory.Activations/4
	cut, err := try(t, budgeted(t, model, fmt.Sprintf("memory=%d", memory)))
	require.NoError(t, err)
	require.Greater(t, cut.fit.Cut, 1)
	require.Equal(t, 4, cut.fit.Rows*cut.fit.Cut)
	require.LessOrEqual(t, cut.memory.Resident(), memory)
	require.InDeltaSlice(t, free.losses, cut.losses, 2e-6)
	require.Contains(t, strings.Join(cut.notes, "\n"), "add up to the same but for rounding")

	memory = all.memory.Resident() - all.memory.Activations/2
	_, err = try(t, budgeted(t, model, fmt.Sprintf("memory=%d", memory), "adapter.lora_dropout=0.1"))
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	require.ErrorContains(t, err, "more than memory")
	require.ErrorContains(t, err, "lora_dropout draws a mask for each")
	require.ErrorContains(t, err, "tokens would fit (data.max_length)")
	_, err = try(t, budgeted(t, model, "memory=1MiB"))
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	require.ErrorContains(t, err, "no length of rows would fit")
}

// peakFile is what the child of TestPlanAgainstPeak leaves in its folder.
const peakFile = "peak.json"

// peak is what a process planned and what it had in memory at most.
type peak struct{ Planned, Measured int64 }

// TestPlanAgainstPeak: the plan says what the process then takes, to a
// twentieth and 24 MiB: the plan rounds what the process has up to 16 MiB, and garbage.
func TestPlanAgainstPeak(t *testing.T) {
	if peakMemory() == 0 {
		t.Skip("the system does not tell a process its peak")
	}
	dir := t.TempDir()
	model, err := filepath.Abs(writeModel(t, filepath.Join(dir, "model")))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(strings.Join(longRows(24), "\n")+"\n"), 0o666))
	settings := []string{"memory: 90MiB\n", "", "activation_checkpointing: true\n"}
	if os.Getenv("LORAFUSE_LONG") == "" {
		settings = settings[:1]
	}
	for _, more := range settings {
		yaml := fmt.Sprintf("model: %s\noutput_dir: %s\ndata: {train: %s, max_length: 200}\nadapter: {r: 8, target_modules: all-linear}\nbatch_size: 8\nsteps: 3\nsave_steps: 2\nlog: {plot: false}\n",
			model, filepath.Join(dir, "out"), filepath.Join(dir, "rows.jsonl"))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "train.yaml"), []byte(yaml+more), 0o666))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "out")))
		runChild(t, dir)
		raw, err := os.ReadFile(filepath.Join(dir, peakFile))
		require.NoError(t, err)
		var p peak
		require.NoError(t, json.Unmarshal(raw, &p))
		t.Logf("%splanned %s, measured %s", more, bytesize.Binary(p.Planned), bytesize.Binary(p.Measured))
		require.InDelta(t, p.Planned, p.Measured, float64(p.Planned)/20+24<<20, more)
	}
}

// peakMemory returns the most that this process had in memory, without the pages of its
// executable, which no plan counts; 0 if unknown.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	mappings, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0
	}
	var peak, executable, kib int64
	for _, line := range strings.Split(string(status), "\n") {
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			peak = kib << 10
		}
	}
	inside := false
	for _, line := range strings.Split(string(mappings), "\n") {
		if n, _ := fmt.Sscanf(line, "Rss: %d kB", &kib); n == 1 && inside {
			executable += kib << 10
		}
		if first, _, _ := strings.Cut(line, " "); strings.Contains(first, "-") {
			inside = strings.HasSuffix(line, os.Args[0])
		}
	}
	return peak - executable
}

// TestPack: packed copies change no bit, and with a budget they take what is
// left of it.
func TestPack(t *testing.T) {
	train.FixProcessMemory(t, 8<<20)
	model := writeModel(t, filepath.Join(t.TempDir(), "model"))
	free, err := try(t, budgeted(t, model))
	require.NoError(t, err)
	require.Zero(t, free.memory.Packed)
	always, err := try(t, budgeted(t, model, "pack=always"))
	require.NoError(t, err)
	require.Positive(t, always.memory.Packed)
	require.Equal(t, free.hash, always.hash)
	require.Equal(t, free.memory.Total()+always.memory.Packed, always.memory.Total())

	// batch_size 1 is few tokens, so that auto packs.
	small, err := try(t, budgeted(t, model, "batch_size=1", "data.max_length=100", "pack=never"))
	require.NoError(t, err)
	left := always.memory.Packed / 2
	memory := small.memory.Resident() + left
	some, err := try(t, budgeted(t, model, fmt.Sprintf("memory=%d", memory), "batch_size=1", "data.max_length=100", "pack=auto"))
	require.NoError(t, err)
	require.Equal(t, small.hash, some.hash)
	require.Positive(t, some.memory.Packed)
	require.LessOrEqual(t, some.memory.Resident(), memory)
}
