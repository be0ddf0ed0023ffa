package dist_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
)

var update = flag.Bool("update", false, "write the table in docs/distributed.md again")

// Assumptions of the table in docs/distributed.md.
const (
	rank       = 16      // of the adapters
	stepTokens = 131_072 // of a step of one job
	microBatch = 8_192   // tokens
	flops      = 457e12  // per second and GPU, of an H100 in a LoRA step
	goodput    = 0.94    // share of a link's rate that TCP leaves for data
)

// decoder is the shape of a Llama model and the type of its layers' weights.
type decoder struct {
	name                           string
	hidden, kv, ffn, layers, vocab int
	weightBits                     float64
}

var decoders = []decoder{
	{"8B, bf16", 4096, 1024, 14336, 32, 128256, 16},
	{"70B, nf4", 8192, 1024, 28672, 80, 128256, 4.5},
}

// layerWeights returns the number of weights of all layers.
func (d decoder) layerWeights() float64 {
	return float64(d.layers * (2*d.hidden*d.hidden + 2*d.hidden*d.kv + 3*d.hidden*d.ffn))
}

// trained returns the number of parameters of an adapter on all linear layers.
func (d decoder) trained() float64 {
	return float64(rank * d.layers * (2*(d.hidden+d.hidden) + 2*(d.hidden+d.kv) + 3*(d.hidden+d.ffn)))
}

// memory returns the bytes on a device with activation checkpointing: weights (embedding and head in bf16), the input
// of each layer, activations and gradients of one layer, and the adapter with its gradient and moments.
func (d decoder) memory() float64 {
	weights := d.layerWeights()*d.weightBits/8 + float64(2*d.hidden*d.vocab*2)
	inputs := float64(microBatch * d.hidden * 2 * d.layers)
	layer := float64(microBatch * (5*d.hidden + 2*d.kv + 3*d.ffn) * 2 * 2)
	return weights + inputs + layer + 16*d.trained()
}

// compute returns the seconds of a micro-batch: a frozen weight costs 2 floating-point operations per token in the
// forward pass, 2 in its repetition and 2 for the gradient of the input.
func (d decoder) compute(tokens float64) float64 { return 6 * d.layerWeights() * tokens / flops }

// split is a division of GPUs among jobs. Each job has its own adapter, and its ranks share the micro-batches of a step.
type split struct{ gpus, jobs, ranks int }

var splits = []split{{8, 1, 8}, {64, 1, 16}, {64, 8, 8}}

// rounds returns the number of micro-batches of each rank in a step.
func (s split) rounds() int { return stepTokens / microBatch / s.ranks }

// transfer returns the bytes that a rank receives in each round, and again in the all-gather at the end of a step: it
// owns one slice of the gradient and the others each send theirs, then it gets the slices of the others.
func transfer(trained float64, ranks int) float64 {
	return 4 * trained * float64(ranks-1) / float64(ranks)
}

// exchange returns the seconds of all transfers of a step, and of the part that nothing hides: each round but the last
// overlaps the next micro-batch.
func (s split) exchange(d decoder, bitRate float64) (all, exposed float64) {
	t := transfer(d.trained(), s.ranks) / (bitRate / 8 * goodput)
	overlapped := float64(s.rounds() - 1)
	return (overlapped + 2) * t, overlapped*max(0, t-d.compute(microBatch)) + 2*t
}

// The formulas agree with the sizes of Llama 3.1 and with figures computed by hand.
func TestScaleFormulas(t *testing.T) {
	small, large := decoders[0], decoders[1]
	assert.Equal(t, 41_943_040.0, small.trained())
	assert.Equal(t, 207_093_760.0, large.trained())
	assert.Equal(t, 80*855_638_016.0, large.layerWeights())
	assert.InDelta(t, 1.5, small.compute(16_384), 0.01)
	assert.InDelta(t, 7.4, large.compute(8_192), 0.05)
	assert.InDelta(t, 0.33e9, 2*transfer(small.trained(), 64), 1e6)
	assert.InDelta(t, 1.63e9, 2*transfer(large.trained(), 64), 2e6)

	once := split{64, 1, 16}
	require.Equal(t, 1, once.rounds())
	all, exposed := once.exchange(small, 10e9)
	assert.InDelta(t, 0.268, all, 0.001)
	assert.Equal(t, all, exposed)

	twice := split{8, 1, 8}
	require.Equal(t, 2, twice.rounds())
	all, exposed = twice.exchange(small, 10e9)
	assert.InDelta(t, 0.375, all, 0.001)
	assert.InDelta(t, 0.250, exposed, 0.001, "the first round overlaps 0.75 s of computing")
	all, exposed = twice.exchange(small, 1e9)
	assert.InDelta(t, all-0.751, exposed, 0.001, "of a longer round the rest remains")
}

// counted is a World that counts the bytes that a rank receives from the others.
type counted struct {
	dist.World
	received int
}

func (c *counted) count(parts [][]byte) {
	for i, part := range parts {
		if i != c.Rank() {
			c.received += len(part)
		}
	}
}

func (c *counted) AllToAll(ctx context.Context, recv, send [][]byte) error {
	c.count(recv)
	return c.World.AllToAll(ctx, recv, send)
}

func (c *counted) AllGather(ctx context.Context, parts [][]byte) error {
	c.count(parts)
	return c.World.AllGather(ctx, parts)
}

// A sum moves the bytes of transfer in each round and in the all-gather.
func TestScaleTransfer(t *testing.T) {
	const n, rounds, ranks = 8000, 2, 8
	received, failed := make([]int, ranks), make([]error, ranks)
	var wg sync.WaitGroup
	for rank, w := range local.New(ranks) {
		wg.Go(func() {
			c := &counted{World: w}
			sum, v := dist.NewSum(c, n), make([]float32, n)
			for range rounds {
				failed[rank] = errors.Join(failed[rank], sum.Add(t.Context(), v, ranks))
			}
			failed[rank] = errors.Join(failed[rank], sum.Gather(t.Context(), v))
			received[rank] = c.received
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(failed...))
	for _, bytes := range received {
		assert.Equal(t, (rounds+1)*transfer(n, ranks), float64(bytes))
	}
}

// table returns the table of docs/distributed.md.
func table() string {
	var b strings.Builder
	b.WriteString("| model, weights | GPUs | jobs × ranks | memory per rank | compute | exchange at 10 / 100 Gbit/s | GPU use at 10 / 100 Gbit/s |\n|---|--:|---|--:|--:|--:|--:|\n")
	for _, d := range decoders {
		for _, s := range splits {
			compute := float64(s.rounds()) * d.compute(microBatch)
			var times, use [2]float64
			for i, bits := range []float64{10e9, 100e9} {
				all, exposed := s.exchange(d, bits)
				times[i] = all
				use[i] = 100 * compute / (compute + exposed) * float64(s.jobs*s.ranks) / float64(s.gpus)
			}
			layout := fmt.Sprintf("%d × %d", s.jobs, s.ranks)
			if idle := s.gpus - s.jobs*s.ranks; idle > 0 {
				layout += fmt.Sprintf(", %d idle", idle)
			}
			fmt.Fprintf(&b, "| %s | %d | %s | %.0f GB | %.2f s | %.2f / %.2f s | %.0f / %.0f %% |\n",
				d.name, s.gpus, layout, d.memory()/1e9, compute, times[0], times[1], use[0], use[1])
		}
	}
	return b.String()
}

// TestScaleTable compares the table in docs/distributed.md with the formulas.
//
//	go test ./dist -run TestScaleTable -update
func TestScaleTable(t *testing.T) {
	const name, begin, end = "../docs/distributed.md", "<!-- scale -->\n", "<!-- /scale -->\n"
	raw, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(raw), begin)
	require.True(t, ok, begin)
	got, after, ok := strings.Cut(rest, end)
	require.True(t, ok, end)
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(before+begin+table()+end+after), 0o666))
		return
	}
	require.Equal(t, table(), got, "docs/distributed.md is out of date: go test ./dist -run TestScaleTable -update")
}
