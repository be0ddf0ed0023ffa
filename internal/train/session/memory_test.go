package session_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train/session"
	"github.com/lorafuse/lorafuse/lora"
)

// tight is a device with less memory.
type tight struct {
	backend.Device
	backend.Memory
	bytes int64
}

func (d tight) Info() backend.Info {
	info := d.Device.Info()
	info.Memory = d.bytes
	return info
}

// Where memory is short layers are computed again, which changes no bit, and where that does
// not do either the call fails and says so.
func TestTightMemory(t *testing.T) {
	m, err := model.Open("../../../testdata/extra/qwen2-mixed-windows")
	require.NoError(t, err)
	defer m.Close()
	dev := testdevice.Open(t, backend.Options{})
	memory, ok := dev.(backend.Memory)
	if !ok {
		t.Skip("the device does not divide its memory")
	}
	d := session.Datum{Tokens: make([]int32, 60), Targets: make([]int32, 60)}
	for i := range d.Tokens {
		d.Tokens[i], d.Targets[i] = int32(i*7%90), int32(i*11%90)
	}
	step := func(bytes, budget int64) (arena int, digested lora.Digest, err error) {
		r := host.Open(tight{dev, memory, bytes}, m)
		defer r.Close()
		s, err := session.NewGroup(r).New(ctx, session.Options{Rank: 2, Attention: true, MLP: true, Memory: budget})
		if err != nil {
			return 0, digested, err
		}
		if _, err = s.ForwardBackward(ctx, []session.Datum{d}, session.Loss{Name: "cross_entropy"}, false); err != nil {
			return 0, digested, err
		}
		_, err = s.OptimStep(ctx, session.DefaultAdam())
		require.NoError(t, err)
		return int(r.Cached()), digest(t, s), nil
	}
	first, want, err := step(1<<40, 0)
	require.NoError(t, err)
	arenas := []int{first}
	for bytes := int64(8 << 20); ; bytes = bytes * 9 / 10 {
		arena, got, err := step(bytes, 0)
		if err != nil {
			require.ErrorIs(t, err, backend.ErrOutOfMemory)
			require.NotErrorIs(t, err, session.ErrInput)
			break
		}
		require.Equal(t, want, got)
		arenas = append(arenas, arena)
	}
	require.Less(t, slices.Min(arenas), first, "nothing was computed again")

	// A budget is met with the fewest layers.
	planned := map[int]bool{}
	for budget := 4 * int64(first); ; budget = budget * 9 / 10 {
		arena, got, err := step(1<<40, budget)
		if err != nil {
			require.ErrorIs(t, err, backend.ErrOutOfMemory)
			require.ErrorContains(t, err, "3 of 3 layers recomputed")
			break
		}
		require.Equal(t, want, got)
		require.Less(t, int64(arena), budget)
		planned[arena] = true
	}
	require.True(t, planned[first])
	require.Greater(t, len(planned), 2, "all layers were recomputed at once")
}

// Programs go with the last session of their shape, and long datums do not keep more than
// a few arenas.
func TestPrograms(t *testing.T) {
	b := open(t, llama)
	one, err := session.NewGroup(b).New(ctx, all)
	require.NoError(t, err)
	two, err := session.NewGroup(b).New(ctx, all)
	require.NoError(t, err)
	for _, n := range []int{3, 70, 128, 100, 5} {
		for _, s := range []*session.Session{one, two} {
			_, err := s.ForwardBackward(ctx, []session.Datum{{Tokens: make([]int32, n), Targets: make([]int32, n)}}, session.Loss{Name: "cross_entropy"}, n == 3)
			require.NoError(t, err)
		}
	}
	held := b.Cached()
	one.Close()
	one.Close()
	require.Equal(t, held, b.Cached())
	require.Zero(t, one.Bytes())
	require.NotZero(t, two.Bytes())
	two.Close()
	require.Zero(t, b.Cached())
}
