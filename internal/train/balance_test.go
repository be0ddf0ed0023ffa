package train_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// The loss of balance of each micro-batch counts whole, as in the Trainer of
// transformers, however many labels the step has.
func TestBalanceAccumulates(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"mixtral-balance", "qwen3-moe-balance"} {
		dir := filepath.Join("../../testdata/peft", name, "train")
		e, batches := recorded{name, filepath.Join("../../testdata/peft/base", name), dir}.begin(t, testdevice.Open(t, backend.Options{}))
		tokens := batches[0].LossTokens + batches[1].LossTokens
		for i, b := range batches[:2] {
			b.StepTokens = tokens
			require.NoError(t, e.Accumulate(ctx, b, uint32(i)))
		}
		checkGradients(t, e, filepath.Join(dir, "grads_accumulated.safetensors"), float32(tokens), 1e-4)
	}
}

// An evaluation has the loss of the labels alone.
func TestBalanceIsOfTrainingAlone(t *testing.T) {
	ctx, dev := context.Background(), testdevice.Open(t, backend.Options{})
	loss := func(base string) float64 {
		dir := "../../testdata/peft/mixtral-balance/train"
		batches := readBatches(t, filepath.Join(dir, "batches.safetensors"))
		m, s := load(t, base, filepath.Join(dir, "init"), lora.CheckOptions{AllowZeroB: true})
		e, err := train.NewEngine(ctx, dev, m, s, train.EngineOptions{MaxTokens: 24, MaxEvalTokens: 24, Adam: trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}})
		require.NoError(t, err)
		defer e.Close()
		require.NoError(t, e.Accumulate(ctx, batches[1], 0))
		got, err := e.Evaluate(ctx, batches[0])
		require.NoError(t, err)
		return got
	}
	require.Equal(t, loss("../../testdata/extra/mixtral"), loss("../../testdata/peft/base/mixtral-balance"))
}

// A run tells its micro-batches how many labels the step has: of equal ones, each
// adds the same balance.
func TestBalanceOfRuns(t *testing.T) {
	model := writeBalanced(t, filepath.Join(t.TempDir(), "model"))
	rows := []string{}
	for range 6 {
		rows = append(rows, `{"prompt": "one", "completion": " of many, all alike"}`)
	}
	sets := []string{"model=" + model, "batch_size=1", "steps=1", "log.tensorboard=false", "adapter.target_modules=[q_proj]", "adapter.target_parameters=[experts.down_proj, gate.weight]"}
	first := func(n int) float64 {
		return losses(t, configure(t, t.TempDir(), rows, append(sets, fmt.Sprintf("gradient_accumulation_steps=%d", n))...))[0]
	}
	one, two, three := first(1), first(2), first(3)
	require.InDelta(t, 0.3*2, two-one, 0.1, "experts that are used alike have a balance of as many as a row chooses")
	require.InDelta(t, two-one, three-two, 1e-5)

	_, err := try(t, configure(t, t.TempDir(), rows, append(sets, "batch_size=2", "memory=4KiB")...))
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	require.ErrorContains(t, err, "router_aux_loss_coef balances the experts of each")
}

// Routers are balanced whatever the task: what preferences have beside it is the same for
// all models before the first step.
func TestBalanceOfPreferences(t *testing.T) {
	rows := []string{}
	for range 6 {
		rows = append(rows, `{"prompt": "one", "chosen": " of many", "rejected": " alone"}`)
	}
	first := func(model string) float64 {
		return losses(t, configure(t, t.TempDir(), rows, "task=preference", "model="+model, "batch_size=2", "steps=1", "log.tensorboard=false", "adapter.target_modules=[q_proj]"))[0]
	}
	require.InDelta(t, math.Ln2, first(tinyModel), 1e-5)
	require.InDelta(t, math.Ln2+0.3*2, first(writeBalanced(t, filepath.Join(t.TempDir(), "model"))), 0.2)
}

// writeBalanced writes the model of mixtral-balance under the vocabulary of the tiny
// one.
func writeBalanced(t *testing.T, dir string) string {
	const from, vocab = "../../testdata/peft/base/mixtral-balance", 512
	require.NoError(t, os.MkdirAll(dir, 0o777))
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		raw, err := os.ReadFile(filepath.Join(tinyModel, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), raw, 0o666))
	}
	raw, err := os.ReadFile(filepath.Join(from, "config.json"))
	require.NoError(t, err)
	var c map[string]any
	require.NoError(t, json.Unmarshal(raw, &c))
	c["vocab_size"] = vocab
	raw, err = json.Marshal(c)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o666))
	f, err := safetensors.Open(filepath.Join(from, "model.safetensors"))
	require.NoError(t, err)
	var entries []safetensors.Entry
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		require.NoError(t, err)
		e := v.Entry()
		e.Write = nil
		e.Data = append([]byte(nil), v.Bytes()...)
		if strings.HasSuffix(name, "embed_tokens.weight") || strings.HasSuffix(name, "lm_head.weight") {
			row := len(e.Data) / e.Shape[0]
			for i := e.Shape[0]; i < vocab; i++ {
				e.Data = append(e.Data, e.Data[(i%e.Shape[0])*row:][:row]...)
			}
			e.Shape = []int{vocab, e.Shape[1]}
		}
		entries = append(entries, e)
	}
	require.NoError(t, f.Close())
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), entries, nil))
	return dir
}
