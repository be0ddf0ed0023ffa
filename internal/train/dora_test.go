package train_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// peftCase opens an adapter of testdata/peft and the model that it is for.
func peftCase(t *testing.T, name string) (*model.Model, *lora.State) {
	dir := filepath.Join("../../testdata/peft", name)
	raw, err := os.ReadFile(filepath.Join(dir, "adapter/adapter_config.json"))
	require.NoError(t, err)
	var c struct {
		Base string `json:"base_model_name_or_path"`
	}
	require.NoError(t, json.Unmarshal(raw, &c))
	m, err := model.Open(filepath.Join(dir, c.Base))
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	s, err := lora.LoadState(filepath.Join(dir, "adapter"), m, m.Config.ModelType, m.Modules())
	require.NoError(t, err)
	return m, s
}

// countingBatch is one row of n tokens.
func countingBatch(n int) *data.Batch {
	ids, next := make([]int32, n), make([]int32, n)
	for i := range int32(n) {
		ids[i], next[i] = i+3, i+4
	}
	b := &data.Batch{}
	b.Add(ids, next)
	return b
}

// gradients are the loss and the gradients of a batch, by graphs that make what
// depends on parameters alone as they go, or beforehand.
func gradients(t *testing.T, dev backend.Device, m *model.Model, s *lora.State, precomputed bool) (results [][]float32) {
	ctx, r := context.Background(), host.Open(dev, m)
	defer r.Close()
	slot, err := r.NewSlot(s)
	require.NoError(t, err)
	defer slot.Free()
	var sizes []int
	spec := engine.Spec{Name: "gradients", Bounds: map[string]int{nn.Tokens: 12}, Training: true, Whole: !precomputed}
	spec.Build = func(b *nn.Builder, p *graph.Program) {
		loss := m.Build(b).Loss(b, model.NextToken)
		var params []graph.Tensor
		for _, x := range b.Trained() {
			params = append(params, b.Train(x.Name, x.Shape...))
			sizes = append(sizes, len(s.Values[x.Name]))
		}
		p.Result("loss", loss)
		for i, d := range b.G.GradientsWith(loss, params, ir.GradOptions{Checkpoint: true}) {
			p.Result(fmt.Sprint(i), d)
		}
		require.Equal(t, precomputed, b.Precomputation(0) != nil)
	}
	given, err := r.Compute(ctx, slot, spec, countingBatch(12), 12)
	require.NoError(t, err)
	read := func(name string, n int) {
		x, err := given.Get(ctx, name)
		require.NoError(t, err)
		require.Len(t, x, n)
		results = append(results, x)
	}
	read("loss", 1)
	for i, n := range sizes {
		read(fmt.Sprint(i), n)
	}
	return results
}

// TestPreparedNorms: the norms of DoRA made beforehand change no bit of the loss
// and of the gradients.
func TestPreparedNorms(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	for _, name := range []string{"dora-biases", "dora-rslora", "embedding-dora", "init-pissa-dora"} {
		t.Run(name, func(t *testing.T) {
			m, s := peftCase(t, name)
			require.Equal(t, gradients(t, dev, m, s, false), gradients(t, dev, m, s, true))
		})
	}
}

// roots counts launches of square roots of vectors: each is a norm.
func roots(p *backend.Profile) (n int) {
	for _, r := range p.Rows() {
		if r.Op == ir.Unary.String() && r.Shapes != "f32[] → f32[]" {
			n += r.Calls
		}
	}
	return n
}

// TestNormsOncePerStep: DoRA's norms, which read all weights that have an adapter,
// are made once for each step of the optimizer, whatever is computed in between.
func TestNormsOncePerStep(t *testing.T) {
	m, s := peftCase(t, "dora-biases")
	targets := 0
	for _, x := range s.Placement.Targets {
		if x.Method() == "DoRA" {
			targets++
		}
	}
	require.Positive(t, targets)
	profile := &backend.Profile{}
	dev, err := backend.Open(backend.CPU, backend.Options{Profile: profile})
	require.NoError(t, err)
	defer dev.Close()
	ctx, batch := context.Background(), countingBatch(12)
	e, err := train.NewEngine(ctx, dev, m, s, train.EngineOptions{
		MaxTokens: 12, MaxEvalTokens: 12, Adam: trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, MaxGradNorm: 1}, Checkpointing: true,
	})
	require.NoError(t, err)
	defer e.Close()
	before, err := e.Evaluate(ctx, batch)
	require.NoError(t, err)
	require.Equal(t, targets, roots(profile), "what the run begins with")
	for step := range 3 {
		for micro := range 4 {
			require.NoError(t, e.Accumulate(ctx, batch, uint32(4*step+micro)))
		}
		_, err := e.Update(ctx, 4*batch.LossTokens, step+1, 1e-2)
		require.NoError(t, err)
		for range 2 {
			after, err := e.Evaluate(ctx, batch)
			require.NoError(t, err)
			require.Less(t, after, before, "by norms of the new parameters")
		}
		require.Equal(t, (step+2)*targets, roots(profile))
	}
}
