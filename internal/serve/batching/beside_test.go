package batching_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/train"
	_ "github.com/lorafuse/lorafuse/internal/train/task" // the tasks of runs
	"github.com/lorafuse/lorafuse/train/config"
)

// lesson is the configuration of a run of so many steps.
func lesson(t testing.TB, adapter string, steps int) *config.Config {
	t.Helper()
	dir := t.TempDir()
	var rows strings.Builder
	for i := range 20 {
		fmt.Fprintf(&rows, "{\"prompt\": \"after %d comes\", \"completion\": %q}\n", i, strings.Repeat(fmt.Sprint(" number ", i+1), 1+i%3))
	}
	data := filepath.Join(dir, "rows.jsonl")
	require.NoError(t, os.WriteFile(data, []byte(rows.String()), 0o666))
	c, err := config.Parse("lesson.yaml", []byte("adapter: {"+adapter+"}"), "model="+llama, "data.train="+data, "data.eval="+data, "eval_steps=3", fmt.Sprint("steps=", steps),
		"batch_size=2", "learning_rate=0.01", "output_dir="+filepath.Join(dir, "out"), "log.plot=false", "log.tensorboard=false", "backend=cpu", "precision=f32", "batch_invariant=true", "threads=2")
	require.NoError(t, err)
	return c
}

// learn trains, and gives the sum of the adapter.
func learn(ctx context.Context, r *train.Run) (string, error) {
	defer r.Close()
	s, err := r.Train(ctx)
	if err != nil {
		return "", err
	}
	raw, err := os.ReadFile(filepath.Join(s.Adapter, "adapter_model.safetensors"))
	return fmt.Sprintf("%x", sha256.Sum256(raw)), err
}

// TestBeside: an adapter that is trained while the engine serves has the bits of one that
// is trained alone, and answers meanwhile those of a model that is asked alone. Weights
// are on the device once.
func TestBeside(t *testing.T) {
	kinds := []string{"r: 4, target_modules: all-linear, lora_dropout: 0.1", "r: 3, target_modules: [q_proj, lm_head], use_dora: true"}
	var alone []string
	for _, kind := range kinds {
		r, err := train.New(ctx, lesson(t, kind, 8), train.Observer{})
		require.NoError(t, err)
		sum, err := learn(ctx, r)
		require.NoError(t, err)
		alone = append(alone, sum)
	}
	b := benchOn(t, testdevice.Open(t, backend.Options{Threads: 2, BatchInvariant: true}), open(t, llama), adapters, batching.Options{PageRows: 4, TrainShare: 0.3})
	var requests []batching.Request
	var want []answer
	for _, name := range []string{"", "lora", "dora"} {
		for i := range 4 {
			r := greedy(name, prompt(b.m, uint64(i), 3+4*i), 12)
			r.Salt = fmt.Sprint(i) // prompts are read, too
			requests, want = append(requests, r), append(want, b.expected(r))
		}
	}
	sums := make([]string, len(kinds))
	var learned atomic.Int32
	var all sync.WaitGroup
	for i, kind := range kinds {
		r := b.Beside()
		defer r.Close()
		run, err := train.NewBase(r, llama).New(ctx, lesson(t, kind, 8), train.Observer{})
		require.NoError(t, err)
		all.Go(func() {
			defer learned.Add(1)
			sum, err := learn(ctx, run)
			require.NoError(t, err)
			sums[i] = sum
		})
	}
	for i := range 3 {
		all.Go(func() {
			for n := i; int(learned.Load()) < len(kinds) || n < 2*len(requests); n++ {
				got, _, err := collect(b.Engine, requests[n%len(requests)])
				require.NoError(t, err)
				require.Equal(t, want[n%len(requests)], got[0])
			}
		})
	}
	all.Wait()
	require.Equal(t, alone, sums)
	used := b.Stats().Time
	require.Positive(t, used.Steps)
	require.Positive(t, used.Slices)
}

// TestGiveWay: training that has to wait goes on when requests have ended, when its own
// context ends, and when the engine closes; and nothing that ends waits for it.
func TestGiveWay(t *testing.T) {
	for _, how := range []string{"ended", "cancelled", "closed", "drained"} {
		t.Run(how, func(t *testing.T) {
			var once sync.Once
			reached, on := make(chan struct{}), make(chan struct{})
			b := newBench(t, llama, nil, batching.Options{OnStep: func(batching.Step) { once.Do(func() { close(reached); <-on }) }})
			r := b.Beside()
			defer r.Close()
			run, err := train.NewBase(r, llama).New(ctx, lesson(t, "r: 2, target_modules: [q_proj]", 3), train.Observer{})
			require.NoError(t, err)
			asked := make(chan error)
			go func() {
				_, _, err := collect(b.Engine, greedy("", prompt(b.m, 1, 4), 5))
				asked <- err
			}()
			<-reached // a step that is not over
			mine, cancel := context.WithCancel(ctx)
			defer cancel()
			learned := make(chan error)
			go func() {
				_, err := learn(mine, run)
				learned <- err
			}()
			select {
			case <-learned:
				t.Fatal("it has not waited")
			case <-time.After(20 * time.Millisecond):
			}
			switch how {
			case "cancelled":
				cancel()
				require.ErrorIs(t, <-learned, train.ErrInterrupted)
				close(on)
				require.NoError(t, <-asked)
			case "closed":
				close(on)
				b.Close()
				<-asked
				require.NoError(t, <-learned)
			case "drained":
				close(on)
				require.NoError(t, b.Drain(ctx))
				require.NoError(t, <-asked)
				require.NoError(t, <-learned)
			default:
				close(on)
				require.NoError(t, <-asked)
				require.NoError(t, <-learned)
			}
		})
	}
}

// TestBesideCloses: what is trained beside an engine that has been closed still has its
// weights.
func TestBesideCloses(t *testing.T) {
	alone, err := train.New(ctx, lesson(t, "r: 2, target_modules: [q_proj]", 3), train.Observer{})
	require.NoError(t, err)
	want, err := learn(ctx, alone)
	require.NoError(t, err)
	b := newBench(t, llama, nil, batching.Options{})
	r := b.Beside()
	defer r.Close()
	b.Close()
	run, err := train.NewBase(r, llama).New(ctx, lesson(t, "r: 2, target_modules: [q_proj]", 3), train.Observer{})
	require.NoError(t, err)
	got, err := learn(ctx, run)
	require.NoError(t, err)
	require.Equal(t, want, got)
}
