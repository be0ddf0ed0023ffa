package train_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// stepper takes training steps over shuffled rows of many lengths.
type stepper struct {
	t      testing.TB
	engine *train.Engine
	loader *data.Loader
	copies int // allocations of all copies of a step
	batch  data.Batch
	step   int
}

func newStepper(t testing.TB, threads int, checkpointing bool) *stepper {
	m, err := model.Open(tinyModel)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	c := lora.DefaultConfig()
	c.R, c.LoraDropout, c.TargetModules.Names = 4, 0.1, []string{"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"}
	p, err := lora.NewPlacement(c, lora.ModelOf(m.Config.ModelType, m.Modules()))
	require.NoError(t, err)
	s, err := p.InitialState(m, 1)
	require.NoError(t, err)

	file := filepath.Join(t.TempDir(), "rows.txt")
	var text strings.Builder
	for i := range 60 {
		text.WriteString(strings.Repeat("word ", 3+i*7%50) + "\n\n")
	}
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o666))
	set, err := data.Load(context.Background(), []string{file}, data.Options{
		Format: data.FormatText, MaxLength: 128, DocumentSeparator: "blank-line", Tokenizer: letters{}, VocabSize: m.Config.VocabSize,
	})
	require.NoError(t, err)
	w := &stepper{t: t}
	w.loader, err = data.NewLoader(set, data.LoaderConfig{BatchSize: 4, Accumulation: 2, Shuffle: true})
	require.NoError(t, err)
	dev := testdevice.Open(t, backend.Options{Threads: threads})
	w.copies = 4 * testdevice.CopyAllocs(dev.Info()) // what goes up for two micro-batches and the update, and the loss
	w.engine, err = train.NewEngine(context.Background(), dev, m, s, train.EngineOptions{
		MaxTokens: w.loader.MaxTokens(), Adam: trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, MaxGradNorm: 1}, Checkpointing: checkpointing,
	})
	require.NoError(t, err)
	t.Cleanup(w.engine.Close)
	return w
}

// letters is a tokenizer of bytes.
type letters struct{}

func (letters) Encode(text string, _ bool) ([]int32, error) {
	ids := make([]int32, len(text))
	for i := range text {
		ids[i] = int32(text[i])
	}
	return ids, nil
}

func (letters) EOS() (int32, bool) { return 0, false }

func (w *stepper) next() {
	ctx := context.Background()
	for micro := range w.loader.Micros(w.step) {
		if err := w.loader.Fill(&w.batch, w.step, micro); err != nil {
			w.t.Fatal(err)
		}
		if err := w.engine.Accumulate(ctx, &w.batch, uint32(2*w.step+micro)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.step++
	if _, err := w.engine.Update(ctx, w.loader.LossTokens(w.step-1), w.step, 1e-3); err != nil {
		w.t.Fatal(err)
	}
}

// TestStepsAllocateNothing: drawing the batch, forward, backward and update of
// a whole step, dropout included, but for what the copies do.
func TestStepsAllocateNothing(t *testing.T) {
	for _, threads := range []int{1, 2} {
		for _, checkpointing := range []bool{false, true} {
			w := newStepper(t, threads, checkpointing)
			w.next()
			require.LessOrEqual(t, testing.AllocsPerRun(8, w.next), float64(w.copies), "%d threads, checkpointing %v", threads, checkpointing)
		}
	}
}

// TestFlatHeap: a thousand steps leave the heap as it was.
func TestFlatHeap(t *testing.T) {
	if os.Getenv("LORAFUSE_LONG") == "" {
		t.Skip("LORAFUSE_LONG is not set")
	}
	w := newStepper(t, 2, false)
	for range 10 {
		w.next()
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 1000 {
		w.next()
	}
	runtime.ReadMemStats(&after) // without collecting first: there is nothing to collect
	t.Logf("1000 steps: %d allocations, %d bytes, heap %d → %d", after.Mallocs-before.Mallocs,
		after.TotalAlloc-before.TotalAlloc, before.HeapAlloc, after.HeapAlloc)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<10), "bytes of a thousand steps, the runtime's own among them")
	require.Less(t, after.HeapSys, before.HeapSys+4<<20)
}
