package generate_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/lora"
)

// counting counts what is brought to a device, and what is compiled there.
type counting struct {
	backend.Device
	bytes, programs atomic.Int64
}

func (c *counting) Import(src weights.Data) (backend.Buffer, error) {
	c.bytes.Add(int64(len(src.Bytes)))
	return c.Device.Import(src)
}

func (c *counting) Upload(dst backend.Buffer, off int, src []byte) (backend.Fence, error) {
	c.bytes.Add(int64(len(src)))
	return c.Device.Upload(dst, off, src)
}

func (c *counting) Compile(p *ir.Program) (backend.Executable, error) {
	c.programs.Add(1)
	return c.Device.Compile(p)
}

// countingLoader is counting for a device that loads files itself.
type countingLoader struct {
	*counting
	backend.Loader
}

func (c countingLoader) Load(ctx context.Context, weights []backend.Weight) ([]backend.Buffer, error) {
	for _, w := range weights {
		c.bytes.Add(int64(w.View.Len()))
	}
	return c.Loader.Load(ctx, weights)
}

// counted wraps a device.
func counted(dev backend.Device) (backend.Device, *counting) {
	c := &counting{Device: dev}
	if l, ok := dev.(backend.Loader); ok {
		return countingLoader{c, l}, c
	}
	return c, c
}

// tensorBytes is what an adapter has on a device: its values, and the norms of
// the weights that DoRA divides by.
func tensorBytes(s *lora.State) int64 {
	if s == nil {
		return 0
	}
	return 4*int64(s.Params()) + norms(s)
}

// norms is the size of one number for each output that DoRA scales.
func norms(s *lora.State) (n int64) {
	if s == nil {
		return 0
	}
	for _, x := range s.Placement.Targets {
		if x.Method() == "DoRA" {
			n += 4 * int64(x.Out)
		}
	}
	return n
}

const adapters = "../../testdata/lm/llama/adapters/"

// An adapter takes the place of another one, of any kind, and goes again: what is
// brought to the device are its own tensors, and the logits are those of a
// generator that never had another.
func TestSetAdapter(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	m, err := model.Open(llama)
	require.NoError(t, err)
	defer m.Close()
	ids := tokens(m, 9)
	want := func(s *lora.State) []float32 {
		g, err := generate.New(ctx, dev, m, s, generate.Options{PrefillChunk: 8})
		require.NoError(t, err)
		defer g.Close()
		logits, err := g.Read(ctx, ids)
		require.NoError(t, err)
		return slices.Clone(logits)
	}
	on, count := counted(dev)
	first := state(t, m, adapters+"lora")
	g, err := generate.New(ctx, on, m, first, generate.Options{PrefillChunk: 8})
	require.NoError(t, err)
	defer g.Close()
	base := count.bytes.Load() - tensorBytes(first)
	require.Greater(t, base, 4*tensorBytes(first))
	// Of DoRA the device has what it has made of the adapter as well.
	others := func(s *lora.State) int64 { return int64(g.Bytes()) - tensorBytes(s) - norms(s) }
	bytes := others(first)
	names := []string{"dora", "", "saved_head", "lora"}
	if dev.Info().Unified { // the other is simulated
		names = append(names, "rslora_all", "patterns", "lora", "")
	}
	for _, name := range names {
		var s *lora.State
		if name != "" {
			s = state(t, m, adapters+name)
		}
		before := count.bytes.Load()
		require.NoError(t, g.SetAdapter(ctx, s))
		require.Equal(t, tensorBytes(s), count.bytes.Load()-before, "%q alone is uploaded", name)
		require.Equal(t, bytes, others(s), "and what was there is given back")
		got, err := g.Read(ctx, ids)
		require.NoError(t, err)
		require.Equal(t, want(s), got, "%q", name)
		got, err = g.Read(ctx, ids) // of which the last token alone is read again
		require.NoError(t, err)
		requireClose(t, want(s), got)
	}
}

// Adapters of one shape share their programs.
func TestSetAdapterOfTheSameShape(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	m, err := model.Open(llama)
	require.NoError(t, err)
	defer m.Close()
	on, count := counted(dev)
	s := state(t, m, adapters+"lora")
	g, err := generate.New(ctx, on, m, s, generate.Options{})
	require.NoError(t, err)
	defer g.Close()
	ids := tokens(m, 5)
	first, err := g.Read(ctx, ids)
	require.NoError(t, err)
	first = slices.Clone(first)
	compiled := count.programs.Load()
	other := state(t, m, adapters+"lora")
	for _, v := range other.Values {
		for i := range v {
			v[i] *= 3
		}
	}
	require.NoError(t, g.SetAdapter(ctx, other))
	changed, err := g.Read(ctx, ids)
	require.NoError(t, err)
	require.NotEqual(t, first, changed)
	require.NoError(t, g.SetAdapter(ctx, s))
	again, err := g.Read(ctx, ids)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, compiled, count.programs.Load())
	require.NoError(t, g.SetAdapter(ctx, nil))
	require.Equal(t, compiled+2, count.programs.Load())
}

// An adapter that cannot be brought to the device leaves the old one at work.
func TestSetAdapterFails(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	m, err := model.Open(llama)
	require.NoError(t, err)
	defer m.Close()
	g, err := generate.New(ctx, dev, m, state(t, m, adapters+"lora"), generate.Options{})
	require.NoError(t, err)
	defer g.Close()
	ids := tokens(m, 5)
	want, err := g.Read(ctx, ids)
	require.NoError(t, err)
	want = slices.Clone(want)
	bytes := g.Bytes()
	for _, name := range []string{"lora", "dora"} {
		broken := state(t, m, adapters+name)
		for key := range broken.Values {
			broken.Values[key] = nil
			break
		}
		require.ErrorContains(t, g.SetAdapter(ctx, broken), "the adapter's state has 0 elements for")
		g.Reset()
		got, err := g.Read(ctx, ids)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, bytes, g.Bytes())
	}
}

func TestScorerSetAdapter(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	m, err := model.Open(llama)
	require.NoError(t, err)
	defer m.Close()
	rows := [][]int32{tokens(m, 7)}
	on, count := counted(dev)
	s, err := generate.NewScorer(on, m, nil, 8)
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Logits(ctx, rows)
	require.NoError(t, err)
	before := count.bytes.Load()
	_, err = s.Logits(ctx, rows)
	require.NoError(t, err)
	inputs := count.bytes.Load() - before
	for _, name := range []string{"lora", "saved_head", "dora"} {
		adapter := state(t, m, adapters+name)
		require.NoError(t, s.SetAdapter(adapter))
		before := count.bytes.Load()
		got, err := s.Logits(ctx, rows)
		require.NoError(t, err)
		require.Equal(t, inputs+tensorBytes(adapter), count.bytes.Load()-before)
		fresh, err := generate.NewScorer(dev, m, adapter, 8)
		require.NoError(t, err)
		want, err := fresh.Logits(ctx, rows)
		fresh.Close()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
