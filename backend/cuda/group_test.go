//go:build cuda && linux

package cuda_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/internal/fork"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
)

// groupOf serves testdata's llama with two adapters on n devices.
func groupOf(t *testing.T, n int) *batching.Group {
	t.Helper()
	const dir = "../../testdata/lm/llama/"
	m, err := model.Open(dir + "model")
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	var devices []backend.Device
	for i := range n {
		dev, err := cuda.Open(backend.Options{Index: i})
		require.NoError(t, err)
		t.Cleanup(func() { dev.Close() })
		devices = append(devices, dev)
	}
	g, err := batching.NewGroup(context.Background(), devices, m, batching.Options{MaxTexts: 4, CacheTokens: 256})
	require.NoError(t, err)
	t.Cleanup(g.Close)
	for _, name := range []string{"lora", "dora"} {
		_, err := g.Adapters().Load(context.Background(), name, dir+"adapters/"+name)
		require.NoError(t, err)
	}
	return g
}

// asks sends requests for the model and its adapters at the same time, and returns the answers and errors.
func asks(g *batching.Group) (answers [6][]int32, errs [6]error) {
	var all fork.Group
	for i := range answers {
		r := batching.Request{
			Prompt: []int32{int32(3 + i), 20, 7, int32(90 * i), 11}, Adapter: []string{"", "lora", "dora"}[i%3],
			Answers: []generate.GenerateOptions{{MaxNewTokens: 3, IgnoreEOS: true}},
		}
		all.Go(func() {
			for token, err := range g.Submit(context.Background(), r) {
				if errs[i] = err; err == nil {
					answers[i] = append(answers[i], token.ID)
				}
			}
		})
	}
	all.Wait()
	return answers, errs
}

// TestGroup: two devices give the answers of one, and both work.
func TestGroup(t *testing.T) {
	if !onSimulator(t, "LFSIM_DEVICES=2") {
		return
	}
	want, errs := asks(groupOf(t, 1))
	require.Equal(t, [6]error{}, errs)
	g := groupOf(t, 2)
	got, errs := asks(g)
	require.Equal(t, [6]error{}, errs)
	require.Equal(t, want, got)
	for i, s := range g.Devices() {
		require.Equal(t, backend.Info{Backend: backend.CUDA, Index: i}.String(), s.Device)
		require.Positive(t, s.Time.Steps)
	}
}

// TestGroupLost: requests of the device that is lost fail, and the other one answers all that come later.
func TestGroupLost(t *testing.T) {
	if !onSimulator(t, "LFSIM_DEVICES=2", "LFSIM_FAIL=lost:400", "LFSIM_LEAKS=0") {
		return
	}
	g := groupOf(t, 2)
	answers, errs := asks(g)
	for errs == [6]error{} { // until the device is lost
		answers, errs = asks(g)
	}
	want, none := asks(g)
	require.Equal(t, [6]error{}, none)
	for i, err := range errs {
		if err != nil {
			require.ErrorIs(t, err, backend.ErrLost)
			want[i] = want[i][:len(answers[i])]
		}
	}
	for i := range answers {
		require.True(t, slices.Equal(want[i], answers[i]), "%d: %v", i, answers[i])
	}
	lost := g.Lost()
	require.True(t, (lost[0] == nil) != (lost[1] == nil), "%v", lost)
}
