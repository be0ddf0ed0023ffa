package philox

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The known-answer vectors of the authors' Random123 distribution.
func TestKnownAnswers(t *testing.T) {
	const ones = 0xffffffff
	for _, c := range []struct {
		ctr  Counter
		key  Key
		want [4]uint32
	}{
		{Counter{}, Key{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{Counter{ones, ones, ones, ones}, Key{ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{
			Counter{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, Key{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		assert.Equal(t, c.want, c.key.Block(c.ctr))
	}
}

func TestStreamLayout(t *testing.T) {
	s := NewStream(0x1122334455667788, 7, 9)
	const i = uint64(5)<<34 + 4*3 + 2
	want := Key{0x55667788, 0x11223344}.Block(Counter{3, 5, 9, 7})
	// i/4 = 5·2^32 + 3: the high word of the counter is in use.
	assert.Equal(t, want[2], s.Word(i))
}

func TestFillEqualsWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewStream(rapid.Uint64().Draw(t, "seed"), rapid.Uint32().Draw(t, "step"), rapid.Uint32().Draw(t, "op"))
		start := rapid.OneOf(rapid.Uint64Range(0, 100), rapid.Uint64Range(1<<34-9, 1<<34+9)).Draw(t, "start")
		dst := make([]uint32, rapid.IntRange(0, 40).Draw(t, "n"))
		s.Fill(dst, start)
		for i, w := range dst {
			require.Equal(t, s.Word(start+uint64(i)), w)
		}
	})
}

func TestUniformRange(t *testing.T) {
	assert.Equal(t, float32(0), Uniform(0))
	assert.Equal(t, float32(1-0x1p-24), Uniform(math.MaxUint32))
	assert.Equal(t, 1-0x1p-53, Uniform64(math.MaxUint32, math.MaxUint32))
	assert.Equal(t, 0.5, Uniform64(0, 1<<31))
}

func TestMoments(t *testing.T) {
	s := NewStream(1, 2, 3)
	const n = 200_000
	var u, u2, z, z2, z4, zz float64
	for i := range uint64(n) {
		x := float64(s.Uniform(i))
		u += x
		u2 += x * x
		y := s.Normal(i)
		z += y
		z2 += y * y
		z4 += y * y * y * y
		if i%2 == 1 {
			zz += y * s.Normal(i-1)
		}
	}
	assert.InDelta(t, 0.5, u/n, 0.003)
	assert.InDelta(t, 1.0/3, u2/n, 0.003)
	assert.InDelta(t, 0, z/n, 0.01)
	assert.InDelta(t, 1, z2/n, 0.015)
	assert.InDelta(t, 3, z4/n, 0.12)
	assert.InDelta(t, 0, zz/(n/2), 0.015)
}

func TestThreshold(t *testing.T) {
	assert.Equal(t, uint32(0), Threshold(0))
	assert.Equal(t, uint32(1<<31), Threshold(0.5))
	assert.Equal(t, uint32(429496730), Threshold(0.1)) // 429496729.6
	assert.Equal(t, uint32(math.MaxUint32), Threshold(1))
	assert.Equal(t, uint32(0), Threshold(math.NaN()))
	assert.Equal(t, uint32(0), Threshold(-1))
}

func TestMaskRate(t *testing.T) {
	for _, p := range []float64{0, 0.05, 0.5, 0.9} {
		m := NewMask(42, 1, 2, p)
		kept := 0
		const n = 100_000
		for i := range uint64(n) {
			if m.Keep(i) {
				kept++
			}
		}
		assert.InDelta(t, 1-p, float64(kept)/n, 0.006, "p=%v", p)
	}
}

func BenchmarkBlock(b *testing.B) {
	k := NewKey(1)
	var sum uint32
	for i := range b.N {
		w := k.Block(Counter{uint32(i)})
		sum += w[0]
	}
	_ = sum
}

func BenchmarkPermutation(b *testing.B) {
	p := NewPermutation(100_000, 1, 2)
	for i := range b.N {
		p.At(uint64(i) % 100_000)
	}
}
