package train_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
)

// documents is a batch of n tokens in rows of at most 50; seed chooses the tokens.
func documents(n, seed, vocab int) *data.Batch {
	b := &data.Batch{}
	for row := 0; row < n; row += 50 {
		var ids, next []int32
		for i := row; i < min(row+50, n); i++ {
			ids, next = append(ids, int32((i*31+seed*17)%vocab)), append(next, int32((i*i+seed)%vocab))
		}
		b.Add(ids, next)
	}
	return b
}

// TestGradientIsTheFoldOfItsMicroBatches: what a step accumulates is
// ((0+g0)+g1)+g2 of gradients that are each computed alone, bit for bit: any
// number of workers can repeat it.
func TestGradientIsTheFoldOfItsMicroBatches(t *testing.T) {
	lengths := []int{30, 825, 2357}
	ctx, dev := context.Background(), testdevice.Open(t, backend.Options{})
	if !dev.Info().Unified {
		lengths = lengths[:1] // a simulated device is slow; the conformance suite has the long ones
	}
	m, s := peftCase(t, "dora-biases")
	for _, n := range lengths {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			e, err := train.NewEngine(ctx, dev, m, s, train.EngineOptions{MaxTokens: n, Adam: trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}})
			require.NoError(t, err)
			defer e.Close()
			gradients := func() map[string][]float32 {
				all := map[string][]float32{}
				for _, p := range e.Trained() {
					size := 1
					for _, d := range p.Shape {
						size *= d
					}
					all[p.Name] = make([]float32, size)
					require.NoError(t, e.Gradient(ctx, p.Name, all[p.Name]))
				}
				return all
			}
			want := map[string][]float32{}
			for micro := range 3 {
				require.NoError(t, e.Accumulate(ctx, documents(n, micro, m.Config.VocabSize), uint32(micro)))
				for name, g := range gradients() {
					if want[name] == nil {
						want[name] = make([]float32, len(g))
					}
					for i, x := range g {
						want[name][i] += x
					}
				}
				_, err := e.Update(ctx, 0, 1, 0) // which clears the gradients and changes no parameter
				require.NoError(t, err)
			}
			for micro := range 3 {
				require.NoError(t, e.Accumulate(ctx, documents(n, micro, m.Config.VocabSize), uint32(micro)))
			}
			for name, g := range gradients() {
				require.Equal(t, want[name], g, name)
			}
		})
	}
}
