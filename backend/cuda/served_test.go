//go:build cuda && linux

package cuda_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/simtest"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
)

// replayCounter counts the runs of served steps, and how many of them replayed a graph.
type replayCounter struct {
	*cuda.Device
	mu             sync.Mutex
	steps, decodes replays // decodes are steps of 64 rows, with padding, and without tokens of prompts
}

type replays struct{ runs, replayed int }

func (r *replays) add(replayed int) {
	r.runs++
	r.replayed += replayed
}

func (c *replayCounter) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	e, err := c.Device.CompileIn(p, arena)
	axis := func(name string) int {
		return slices.IndexFunc(p.Bounds, func(b ir.Bound) bool { return b.Name == name })
	}
	return countedSteps{e, c, axis(nn.Tokens), axis("read")}, err
}

// countedSteps is an executable whose runs are counted. Steps have an axis of tokens, and one of the tokens whose logits
// are computed.
type countedSteps struct {
	backend.Executable
	counter      *replayCounter
	tokens, read int
}

func (e countedSteps) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	before := e.counter.Replayed(e.Executable)
	f, err := e.Executable.Run(ctx, args)
	n := e.counter.Replayed(e.Executable) - before
	e.counter.mu.Lock()
	defer e.counter.mu.Unlock()
	e.counter.steps.add(n)
	if args.Dims[e.tokens] == 64 && args.Dims[e.read] == 64 {
		e.counter.decodes.add(n)
	}
	return f, err
}

// TestServedReplays: 64 clients send one request after the other, so sequences of many lengths join and leave the batch
// at any time. Almost every decode step of such a batch replays a graph.
func TestServedReplays(t *testing.T) {
	simtest.Need(t)
	long(t)
	dir := t.TempDir()
	require.NoError(t, checkpoint.Shape{Name: "served", Hidden: 32, Layers: 1, Inter: 48, Heads: 2, KVHeads: 1, Vocab: 64, Positions: 512}.Write(dir))
	m, err := model.Open(dir)
	require.NoError(t, err)
	defer m.Close()
	dev := &replayCounter{Device: opened(t, backend.Options{Precision: backend.BF16})}
	e, err := batching.New(context.Background(), dev, m, batching.Options{MaxTexts: 64, PageRows: 4})
	require.NoError(t, err)
	defer e.Close()
	var clients sync.WaitGroup
	for i := range 64 {
		r := rand.New(rand.NewPCG(7, uint64(i)))
		clients.Go(func() {
			for range 5 {
				prompt := make([]int32, 8+r.IntN(48))
				for j := range prompt {
					prompt[j] = r.Int32N(64)
				}
				request := batching.Request{Prompt: prompt, Answers: []generate.GenerateOptions{{MaxNewTokens: 32 + r.IntN(192), IgnoreEOS: true}}}
				for _, err := range e.Submit(context.Background(), request) {
					if !assert.NoError(t, err) {
						return
					}
				}
			}
		})
	}
	clients.Wait()
	t.Logf("%d of %d decode steps of 64 rows and %d of all %d steps replayed a graph", dev.decodes.replayed, dev.decodes.runs, dev.steps.replayed, dev.steps.runs)
	require.Greater(t, dev.decodes.runs, 100)
	require.GreaterOrEqual(t, float64(dev.decodes.replayed), 0.95*float64(dev.decodes.runs))
}
