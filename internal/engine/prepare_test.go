package engine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/model"
)

// TestPrepare: what was compiled ahead is what Load gives, in the same memory, and can be
// given back.
func TestPrepare(t *testing.T) {
	m, err := model.Open(llama + "model")
	require.NoError(t, err)
	defer m.Close()
	var dev null.Device
	held := func() int64 { now, _ := dev.Held(); return now }
	r := engine.New(&dev, m)
	s, err := r.NewSlot(adapter(t, m, "dora", 1))
	require.NoError(t, err)
	load := func(prepare bool) (ps []*engine.Program) {
		d, err := r.Plan(s, loss(m))
		require.NoError(t, err)
		if prepare {
			require.NoError(t, r.Prepare(d))
		}
		ps, err = r.Load(t.Context(), s, nil, d)
		require.NoError(t, err)
		d.Drop() // of nothing
		return ps
	}
	first := load(false)
	one := held()
	second := load(false)
	two := held()
	r.Unload(second...)
	require.Equal(t, one, held())
	second = load(true)
	require.Equal(t, two, held())
	r.Unload(second...)
	require.Equal(t, one, held())

	d, err := r.Plan(s, loss(m))
	require.NoError(t, err)
	require.NoError(t, r.Prepare(d))
	require.Equal(t, two, held())
	d.Drop()
	d.Drop()
	require.Equal(t, one, held())
	r.Unload(first...)
	r.Close()
	s.Free()
	require.Zero(t, held())
}

// TestPrepareAside: programs are planned and compiled by another goroutine while one runs,
// and give what they give.
func TestPrepareAside(t *testing.T) {
	dev, m := open(t, llama+"model")
	r := engine.New(dev, m)
	defer r.Close()
	s, err := r.NewSlot(adapter(t, m, "dora", 1))
	require.NoError(t, err)
	defer s.Free()
	d, err := r.Plan(s, loss(m))
	require.NoError(t, err)
	ps, err := r.Load(t.Context(), s, nil, d)
	require.NoError(t, err)
	want := measure(t, ps[0], s)
	drafts := make(chan *engine.Draft, 1)
	go func() {
		defer close(drafts)
		for range 10 {
			d, err := r.Plan(s, loss(m))
			assert.NoError(t, err)
			assert.NoError(t, r.Prepare(d))
			drafts <- d
		}
	}()
	for n := 0; n < 10; {
		require.Equal(t, want, measure(t, ps[0], s))
		select {
		case d := <-drafts:
			n++
			more, err := r.Load(t.Context(), s, nil, d)
			require.NoError(t, err)
			require.Equal(t, want, measure(t, more[0], s))
			r.Unload(more...)
		default:
		}
	}
}
