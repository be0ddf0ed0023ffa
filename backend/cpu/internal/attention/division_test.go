package attention

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSequences(t *testing.T) {
	find := func(bounds ...[2]int32) []sequence {
		var s Spec
		for _, b := range bounds {
			s.Lo, s.Hi = append(s.Lo, b[0]), append(s.Hi, b[1])
		}
		var p division
		p.findSequences(&s)
		return p.sequences
	}
	assert.Empty(t, find([2]int32{3, 3}))
	assert.Equal(t, []sequence{{0, 2, 0, 2}, {2, 4, 2, 5}}, find([2]int32{0, 1}, [2]int32{0, 2}, [2]int32{2, 4}, [2]int32{2, 5}))
	assert.Equal(t, []sequence{{0, 1, 5, 9}, {2, 3, 0, 5}}, find([2]int32{5, 9}, [2]int32{}, [2]int32{0, 5}), "any order, empty between")
	assert.Equal(t, []sequence{{0, 3, 0, 9}}, find([2]int32{0, 2}, [2]int32{5, 9}, [2]int32{1, 2}), "joined over one between")
	assert.Equal(t, []sequence{{0, 4, 0, 9}}, find([2]int32{7, 9}, [2]int32{0, 2}, [2]int32{4, 5}, [2]int32{1, 8}))
}

// The sequences are disjoint, hold every query that sees something with its
// keys, and none could be split.
func TestSequencesAreTheFinestDivision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const keys = 60
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		width := rapid.IntRange(1, 30).Draw(t, "width")
		var s Spec
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			lo := r.IntN(keys)
			s.Lo, s.Hi = append(s.Lo, int32(lo)), append(s.Hi, int32(min(keys, lo+r.IntN(width+1))))
		}
		var p division
		p.findSequences(&s)
		owner := make([]int, keys)
		of := make([]int, s.queries())
		for n, seq := range p.sequences {
			for i := seq.q0; i < seq.q1; i++ {
				require.Zero(t, of[i])
				of[i] = n + 1
			}
			for k := seq.k0; k < seq.k1; k++ {
				require.Zero(t, owner[k])
				owner[k] = n + 1
			}
		}
		for i := range s.queries() {
			for k := s.Lo[i]; k < s.Hi[i]; k++ {
				require.NotZero(t, of[i])
				require.Equal(t, of[i], owner[k])
			}
		}
		for _, seq := range p.sequences {
			for cut := seq.q0 + 1; cut < seq.q1; cut++ {
				require.True(t, hullsMeet(&s, seq.q0, cut, seq.q1), "%v could be cut at %d", seq, cut)
			}
		}
	})
}

// hullsMeet reports whether the sequences of queries [a,b) and those of [b,c)
// overlap anywhere, or are empty.
func hullsMeet(s *Spec, a, b, c int) bool {
	side := func(from, to int) []sequence {
		part := Spec{Lo: s.Lo[from:to], Hi: s.Hi[from:to]}
		var p division
		p.findSequences(&part)
		return p.sequences
	}
	left, right := side(a, b), side(b, c)
	if len(left) == 0 || len(right) == 0 {
		return true
	}
	for _, x := range left {
		for _, y := range right {
			if x.k0 < y.k1 && y.k0 < x.k1 {
				return true
			}
		}
	}
	return false
}
