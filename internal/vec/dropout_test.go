package vec

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/philox"
)

// requireDropped compares y with 1.25 times x where mask keeps elements from start
// on, and 0 elsewhere.
func requireDropped(t *rapid.T, y, x []float32, mask philox.Mask, start uint64) {
	for i := range y {
		want := float32(0)
		if mask.Keep(start + uint64(i)) {
			want = x[i] * 1.25
		}
		if y[i] != want {
			t.Fatalf("element %d: got %v, want %v", i, y[i], want)
		}
	}
}

func TestDropoutFollowsMask(t *testing.T) {
	each(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			m := philox.NewMask(rapid.Uint64().Draw(t, "seed"), rapid.Uint32().Draw(t, "step"),
				rapid.Uint32().Draw(t, "op"), rapid.Float64Range(0, 0.99).Draw(t, "p"))
			start := rapid.OneOf(
				rapid.Uint64Range(0, 1000),
				rapid.Uint64Range(1<<34-300, 1<<34+10), // the low counter word overflows
				rapid.Uint64Range(0, 1<<60),
			).Draw(t, "start")
			n := rapid.IntRange(0, 700).Draw(t, "n")
			x := random(1, n, 1)
			y, all := guarded(n)
			Dropout(y, x, m, start, 1.25)
			requireDropped(t, y, x, m, start)
			requireGuards(t, all)
		})
	})
}

// What is dropped is zero, even where the input is not finite.
func TestDropoutOfNaN(t *testing.T) {
	each(t, func(t *testing.T) {
		x := make([]float32, 640)
		for i := range x {
			x[i] = special[11]
		}
		m := philox.NewMask(1, 2, 3, 0.5)
		Dropout(x, x, m, 0, 2)
		for i, v := range x {
			require.Equal(t, m.Keep(uint64(i)), v != v)
		}
	})
}

func TestKeptBits(t *testing.T) {
	each(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			m := philox.NewMask(rapid.Uint64().Draw(t, "seed"), rapid.Uint32().Draw(t, "step"),
				rapid.Uint32().Draw(t, "op"), rapid.Float64Range(0, 0.99).Draw(t, "p"))
			first := 64 * rapid.OneOf(rapid.Uint64Range(0, 9), rapid.Uint64Range(1<<28-5, 1<<28+1)).Draw(t, "start") // the low counter word overflows
			bits := make([]byte, 8*rapid.IntRange(0, 11).Draw(t, "groups"))
			for i := range bits {
				bits[i] = 0xaa
			}
			Keep(bits, m, first)
			for i := range 8 * len(bits) {
				if keep := bits[i/8]>>(i%8)&1 != 0; keep != m.Keep(first+uint64(i)) {
					t.Fatalf("bit %d is %v", i, keep)
				}
			}
			start := rapid.OneOf(rapid.Just(0), rapid.SampledFrom([]int{16, 48, 64}), rapid.IntRange(0, 8*len(bits))).Draw(t, "element")
			start = min(start, 8*len(bits))
			n := rapid.IntRange(0, 8*len(bits)-start).Draw(t, "n")
			x := random(1, n, 1)
			y, all := guarded(n)
			Masked(y, x, bits, start, 1.25)
			requireDropped(t, y, x, m, first+uint64(start))
			requireGuards(t, all)
		})
	})
}
