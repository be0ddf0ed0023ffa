package batching_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/train/config"
)

// BenchmarkBeside prints the times between the tokens of some streams, and the tokens of a
// second that are answered and learned: of serving alone, of training alone, and of both
// at some shares. Each is measured a while in each round, so that what else the machine
// does meets all of them; it needs the machine for itself all the same.
func BenchmarkBeside(b *testing.B) {
	const streams, tokens, length = 4, 256, 64
	shares := []float64{0.2, 0.5}
	shape := checkpoint.Shape{Name: "bench", Hidden: 896, Layers: 6, Inter: 4864, Heads: 14, KVHeads: 2, Vocab: 32000, Positions: 2048}
	dir := b.TempDir()
	require.NoError(b, shape.Write(dir))
	rows := filepath.Join(b.TempDir(), "rows.safetensors")
	ids := make([]int32, 64*length)
	for i := range ids {
		ids[i] = int32(i * 131 % shape.Vocab)
	}
	require.NoError(b, safetensors.WriteFile(rows, []safetensors.Entry{{Name: "input_ids", DType: safetensors.I32, Shape: []int{64, length}, Data: tensor.BytesOf(ids)}}, nil))
	m := open(b, dir)
	dev, err := backend.Open(backend.CPU, backend.Options{})
	require.NoError(b, err)
	defer dev.Close()

	var all []*besideRow
	for _, share := range append([]float64{0}, shares...) {
		e, err := batching.New(ctx, dev, m, batching.Options{TrainShare: share})
		require.NoError(b, err)
		defer e.Close()
		row := &besideRow{name: "serving alone", engine: e, model: m, adapter: "a"}
		if share > 0 {
			row.name, row.trains = fmt.Sprintf("share %g", share), true
		}
		_, err = e.Adapters().Load(ctx, row.adapter, built(b, m, `"target_modules":"all-linear","r":16`, 1))
		require.NoError(b, err)
		all = append(all, row)
	}
	all = append(all, &besideRow{name: "training alone", engine: all[0].engine, trains: true})
	for _, row := range all {
		if !row.trains {
			continue
		}
		c, err := config.Parse("bench", nil, "model="+dir, "data.train="+rows, "batch_size=1", "steps=100000", "adapter.r=16", "adapter.target_modules=all-linear",
			"log.plot=false", "log.tensorboard=false", "save_steps=0", "output_dir="+filepath.Join(b.TempDir(), "out"))
		require.NoError(b, err)
		r := row.engine.Beside()
		defer r.Close()
		row.run, err = train.NewBase(r, dir).New(ctx, c, train.Observer{Step: func(r train.Report) { row.learned.Store(r.Tokens) }})
		require.NoError(b, err)
		defer row.run.Close()
	}
	for round := 0; b.Loop(); round++ {
		for _, row := range all {
			row.measure(b, round, streams, tokens)
		}
	}
	w := tabwriter.NewWriter(os.Stderr, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tp50 ms\tp99 ms\tmax ms\tanswered tokens/s\tlearned tokens/s\tshare had\t")
	for _, row := range all {
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f\t%.2f\t\n", row.name, row.gapsText(), row.per(int64(row.answered)), row.per(row.taught), row.had())
	}
	require.NoError(b, w.Flush())
	p99 := func(r *besideRow) float64 { return float64(r.quantile(0.99)) }
	b.ReportMetric(p99(all[2])/p99(all[0]), "×p99")
}

// besideRow is one of the things that are measured.
type besideRow struct {
	name    string
	engine  *batching.Engine
	model   *model.Model
	adapter string
	trains  bool
	run     *train.Run
	learned atomic.Int64 // tokens

	gaps     []time.Duration
	answered int
	taught   int64
	took     time.Duration
}

func (r *besideRow) measure(b *testing.B, round, streams, tokens int) {
	learning, stop := context.WithCancel(ctx)
	var training sync.WaitGroup
	if r.trains {
		before := r.learned.Load()
		training.Go(func() {
			_, err := r.run.Train(learning)
			require.ErrorIs(b, err, train.ErrInterrupted)
		})
		for r.learned.Load() == before { // until it is under way
			time.Sleep(10 * time.Millisecond)
		}
	}
	before, start := r.learned.Load(), time.Now()
	if r.adapter == "" {
		time.Sleep(5 * time.Second)
	}
	var mu sync.Mutex
	var work sync.WaitGroup
	for i := range streams {
		if r.adapter == "" {
			break
		}
		work.Go(func() {
			q := greedy(r.adapter, prompt(r.model, uint64(i), 16), tokens)
			q.Answers[0].Logprobs, q.Answers[0].TopLogprobs = false, 0
			q.Salt = fmt.Sprint(round)
			var last time.Time
			for _, err := range r.engine.Submit(ctx, q) {
				require.NoError(b, err)
				now := time.Now()
				mu.Lock()
				if !last.IsZero() {
					r.gaps = append(r.gaps, now.Sub(last))
				}
				r.answered++
				mu.Unlock()
				last = now
			}
		})
	}
	work.Wait()
	r.took += time.Since(start)
	r.taught += r.learned.Load() - before
	stop()
	training.Wait()
}

// had is the part of the time that training had while something was served.
func (r *besideRow) had() float64 {
	u := r.engine.Stats().Time
	if r.adapter == "" || u.Step == 0 {
		return 0
	}
	return u.Slice.Seconds() / (u.Step + u.Slice).Seconds()
}

// per is n by the second.
func (r *besideRow) per(n int64) float64 { return float64(n) / r.took.Seconds() }

func (r *besideRow) quantile(q float64) time.Duration {
	slices.Sort(r.gaps)
	return r.gaps[min(len(r.gaps)-1, int(q*float64(len(r.gaps))))]
}

func (r *besideRow) gapsText() string {
	if len(r.gaps) == 0 {
		return "-\t-\t-"
	}
	ms := func(q float64) float64 { return r.quantile(q).Seconds() * 1e3 }
	return fmt.Sprintf("%.1f\t%.1f\t%.1f", ms(0.5), ms(0.99), ms(1))
}
