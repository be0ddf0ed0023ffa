package train_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// trainRanks runs the ranks of a World, whose contexts and configurations may differ.
func trainRanks(worlds []dist.World, c func(rank int) *config.Config, ctx func(rank int) context.Context, o train.Observer) ([]*train.Summary, []error) {
	sums, errs := make([]*train.Summary, len(worlds)), make([]error, len(worlds))
	var wg sync.WaitGroup
	for rank, w := range worlds {
		wg.Go(func() {
			own := train.Observer{}
			if rank == 0 {
				own = o
			}
			r, err := train.NewRank(context.Background(), w, c(rank), own)
			if err != nil {
				errs[rank] = err
				return
			}
			defer r.Close()
			sums[rank], errs[rank] = r.Train(ctx(rank))
		})
	}
	wg.Wait()
	return sums, errs
}

func background(int) context.Context { return context.Background() }

// anywhere gives rank 0 the output folder, and the others one that must stay empty.
func anywhere(t *testing.T, c *config.Config) func(rank int) *config.Config {
	none := filepath.Join(t.TempDir(), "none")
	t.Cleanup(func() { require.NoDirExists(t, none) })
	return func(rank int) *config.Config {
		own := *c
		if rank > 0 {
			own.OutputDir = none
		}
		return &own
	}
}

// checkpointHashes are the SHA-256 of the tensors in the checkpoints of a run.
func checkpointHashes(t *testing.T, out string) (all []string) {
	files, err := filepath.Glob(filepath.Join(out, "checkpoint-*", "*.safetensors"))
	require.NoError(t, err)
	for _, f := range files {
		raw, err := os.ReadFile(f)
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%s %x", strings.TrimPrefix(f, out), sha256.Sum256(raw)))
	}
	return all
}

// shared are runs that ranks share.
func shared(t *testing.T) map[string]*config.Config {
	dir := t.TempDir()
	must := func(c *config.Config, sets ...string) *config.Config {
		for _, s := range sets {
			require.NoError(t, c.Set(s))
		}
		require.NoError(t, c.Validate())
		return c
	}
	sub := func(name string) string {
		d := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(d, 0o777))
		return d
	}
	short := []string{"log.tensorboard=false", "threads=1"}
	runs := map[string]*config.Config{
		"dropout, DoRA and packing": must(writeRun(t, sub("dora")), slices.Concat(short, []string{"steps=3", "schedule=constant", "warmup_steps=0", "adapter.use_dora=true", "gradient_accumulation_steps=7"})...),
		"nf4 and 8-bit moments":     configure(t, sub("nf4"), countingRows(40), slices.Concat(short, []string{"steps=3", "batch_size=2", "gradient_accumulation_steps=4", "quantize=nf4", "optimizer=adamw_8bit", "adapter.r=32", "save_steps=2"})...),
		"evaluations":               interruptibleRun(t, sub("eval"), []string{"eval_steps=2", "eval_at_start=true", "steps=5", "save_steps=2", "gradient_accumulation_steps=4", "eval_batch_size=1", "early_stopping.patience=2"}),
		"classification":            must(classified(t, sub("class"), "bert", labelled(true)), slices.Concat(short, []string{"steps=4", "gradient_accumulation_steps=4"})...),
		"nothing is finite":         interruptibleRun(t, sub("nan"), interruptible["without an answer"]),
	}
	require.NoError(t, runs["nothing is finite"].Set("gradient_accumulation_steps=4"))
	p := preferences(t)[0]
	runs["preference"] = p.config(t, filepath.Join(sub("dpo"), "out"), "gradient_accumulation_steps=4", "threads=1")
	return runs
}

// TestShareOfRuns: ranks leave the records, the adapter and the moments of a run alone.
func TestShareOfRuns(t *testing.T) {
	for name, c := range shared(t) {
		t.Run(name, func(t *testing.T) {
			r, err := train.New(context.Background(), c, train.Observer{})
			require.NoError(t, err)
			s, err := r.Train(context.Background())
			r.Close()
			require.NoError(t, err)
			want, tensors := outcomeOf(t, c, s), checkpointHashes(t, c.OutputDir)
			sizes := []int{2, 3, 4}
			if os.Getenv("LORAFUSE_LONG") == "" {
				sizes = []int{3}
			}
			for _, size := range sizes {
				require.NoError(t, os.RemoveAll(c.OutputDir))
				sums, errs := trainRanks(local.New(size), anywhere(t, c), background, train.Observer{})
				require.NoError(t, errors.Join(errs...))
				require.Equal(t, want, outcomeOf(t, c, sums[0]), "%d ranks", size)
				require.Equal(t, tensors, checkpointHashes(t, c.OutputDir), "%d ranks", size)
			}
		})
	}
}

// TestShareWithMemory: the ranks take the plan of rank 0, which cuts micro-batches.
func TestShareWithMemory(t *testing.T) {
	train.FixProcessMemory(t, 8<<20)
	model := writeModel(t, filepath.Join(t.TempDir(), "model"))
	all, err := try(t, budgeted(t, model, "activation_checkpointing=true"))
	require.NoError(t, err)
	memory := all.memory.Resident() - all.memory.Activations/4
	cut, err := try(t, budgeted(t, model, fmt.Sprintf("memory=%d", memory)))
	require.NoError(t, err)
	require.Greater(t, cut.fit.Cut, 1)

	c := budgeted(t, model, fmt.Sprintf("memory=%d", memory+1<<20)) // and the vectors that are exchanged
	sums, errs := trainRanks(local.New(2), anywhere(t, c), background, train.Observer{})
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, cut.fit.Cut, sums[1].Fit.Cut)
	require.Equal(t, cut.hash, adapterHash(t, c.OutputDir, train.AdapterDir))
}

// TestShareInterrupted: a rank that is interrupted stops all at the same step, and another
// number of ranks goes on to the same bytes.
func TestShareInterrupted(t *testing.T) {
	c := interruptibleRun(t, t.TempDir(), []string{"eval_steps=2", "eval_at_start=true", "steps=5", "save_steps=2", "gradient_accumulation_steps=4", "eval_batch_size=1"})
	s, err := trainUntil(t, context.Background(), c)
	require.NoError(t, err)
	want := outcomeOf(t, c, s)
	points := 6
	if os.Getenv("LORAFUSE_LONG") != "" {
		points = 40
	}
	random := rand.New(rand.NewPCG(5, 6))
	stops := 0
	for range points {
		require.NoError(t, os.RemoveAll(c.OutputDir))
		again := *c
		again.Resume = "latest"
		sizes := []int{3, 2, 4, 1}
		for i, size := range sizes {
			who, looks := random.IntN(size), 1+random.Int64N(150)
			sums, errs := trainRanks(local.New(size), anywhere(t, resumable(t, &again)), func(rank int) context.Context {
				if rank == who && i < len(sizes)-1 {
					return endAt(looks)
				}
				return context.Background()
			}, train.Observer{})
			if errs[0] == nil {
				require.NoError(t, errors.Join(errs...))
				require.Equal(t, want, outcomeOf(t, c, sums[0]))
				break
			}
			stops++
			for rank, err := range errs {
				require.ErrorIs(t, err, train.ErrInterrupted, "rank %d of %d; rank %d was interrupted at look %d", rank, size, who, looks)
				require.Equal(t, rank > 0, errors.Is(err, train.ErrElsewhere))
			}
		}
	}
	require.Positive(t, stops)
}

// deaf is a World whose rank takes no part from a call on.
type deaf struct {
	dist.World
	sums, gathers int // the number of that call among those of its kind; 0: none
}

func (d *deaf) AllToAll(ctx context.Context, recv, send [][]byte) error {
	if d.sums--; d.sums == 0 {
		return silence(ctx)
	}
	return d.World.AllToAll(ctx, recv, send)
}

func (d *deaf) AllGather(ctx context.Context, parts [][]byte) error {
	if d.gathers--; d.gathers == 0 {
		return silence(ctx)
	}
	return d.World.AllGather(ctx, parts)
}

func silence(ctx context.Context) error {
	<-ctx.Done()
	return &dist.LostError{Call: "nothing", Cause: ctx.Err()}
}

// TestShareLost: if a rank stops answering, every rank ends with an error after the timeout,
// the last complete step is saved, and another number of ranks goes on to the same bytes.
func TestShareLost(t *testing.T) {
	c := interruptibleRun(t, t.TempDir(), []string{"eval_steps=2", "eval_at_start=true", "steps=5", "save_steps=0", "gradient_accumulation_steps=4", "eval_batch_size=1", "distributed_timeout=1s"})
	s, err := trainUntil(t, context.Background(), c)
	require.NoError(t, err)
	want := outcomeOf(t, c, s)
	saved := 0
	at := []deaf{{gathers: 1}, {gathers: 9}, {sums: 1}, {sums: 5}} // a step has two sums
	if os.Getenv("LORAFUSE_LONG") != "" {
		for n := range 10 {
			at = append(at, deaf{sums: n + 1}, deaf{gathers: 3*n + 1})
		}
	}
	for n, d := range at {
		require.NoError(t, os.RemoveAll(c.OutputDir))
		worlds := local.New(3)
		who := 1 + n%2
		d.World = worlds[who]
		worlds[who] = &d
		_, errs := trainRanks(worlds, anywhere(t, c), background, train.Observer{})
		for rank, err := range errs {
			require.ErrorIs(t, err, dist.ErrLost, "rank %d of a group whose rank %d falls silent at %d sums, %d gathers", rank, who, at[n].sums, at[n].gathers)
		}
		if at[n].sums > 0 { // after the start
			require.ErrorContains(t, errs[0], fmt.Sprintf("rank %d on ", who))
			require.ErrorContains(t, errs[0], "step ")
			require.ErrorContains(t, errs[0], "no answer within distributed_timeout")
		}
		again := *c
		again.Resume = "latest"
		if resumable(t, &again) == &again {
			saved++
		}
		sums, errs := trainRanks(local.New(2), anywhere(t, resumable(t, &again)), background, train.Observer{})
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, want, outcomeOf(t, c, sums[0]))
	}
	require.Positive(t, saved)
}

// TestShareRefused: what would make the ranks compute different steps is refused before the
// first, on rank 0 with the key, the rank and the host, and on the others without words.
func TestShareRefused(t *testing.T) {
	dir := t.TempDir()
	c := configure(t, dir, countingRows(24), "gradient_accumulation_steps=2", "batch_size=2", "threads=1")
	other := configure(t, t.TempDir(), countingRows(25), "gradient_accumulation_steps=2", "batch_size=2", "threads=1", "seed=7")
	missing := *c
	missing.Data.Train = config.Strings{filepath.Join(dir, "nothing.jsonl")}
	refused := func(size int, of func(rank int) *config.Config) string {
		began := time.Now()
		_, errs := trainRanks(local.New(size), of, background, train.Observer{})
		require.Less(t, time.Since(began), time.Minute)
		for rank, err := range errs {
			require.Error(t, err)
			require.Equal(t, rank > 0, errors.Is(err, train.ErrElsewhere), "rank %d: %v", rank, err)
		}
		require.NoFileExists(t, filepath.Join(c.OutputDir, "metrics.jsonl"))
		return errs[0].Error()
	}
	same := func(int) *config.Config {
		own := *c
		return &own
	}
	second := func(x *config.Config) func(int) *config.Config {
		return func(rank int) *config.Config {
			if rank == 1 {
				return x
			}
			return same(rank)
		}
	}

	text := refused(3, same)
	require.Contains(t, text, "gradient_accumulation_steps: found 2, 2 micro-batches of a step, for 3 ranks")
	text = refused(2, second(other))
	require.Contains(t, text, "rank 1 on ")
	require.Contains(t, text, "seed is 7 there, 42 here")
	require.Contains(t, text, "data.train is ")
	text = refused(2, second(&missing))
	require.Contains(t, text, "rank 1 on ")
	require.Contains(t, text, "nothing.jsonl")

	r, err := train.New(context.Background(), c, train.Observer{})
	require.NoError(t, err)
	text = refused(2, same)
	require.Contains(t, text, "another run is under way")
	r.Close()
}

// TestShareNotes: an uneven split is reported.
func TestShareNotes(t *testing.T) {
	var notes []string
	c := configure(t, t.TempDir(), countingRows(24), "gradient_accumulation_steps=7", "batch_size=1", "steps=1", "threads=1")
	_, errs := trainRanks(local.New(3), anywhere(t, c), background, train.Observer{Note: func(s string) { notes = append(notes, s) }})
	require.NoError(t, errors.Join(errs...))
	require.Contains(t, strings.Join(notes, "\n"), "ranks    3, on 1 hosts")
	require.Contains(t, strings.Join(notes, "\n"), "7 micro-batches of a step on 3 ranks: 22 % of their time is idle; a multiple of 3")
}
