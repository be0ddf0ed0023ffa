package sample

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// golden holds the output of transformers, recorded by testdata/make_golden.py.
type golden struct {
	History []int32     `json:"history"`
	Logits  [][]float64 `json:"logits"`
	Cases   []struct {
		Row         int     `json:"row"`
		Temperature float64 `json:"temperature"`
		TopK        int     `json:"top_k"`
		TopP        float64 `json:"top_p"`
		MinP        float64 `json:"min_p"`
		Penalty     float64 `json:"repetition_penalty"`
		Greedy      int32
		Kept        []int32
		Probs       []float64
	} `json:"cases"`
}

func TestAsTransformers(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(text, &g))
	require.Equal(t, 104, len(g.Cases))
	rows := make([][]float32, len(g.Logits))
	for i, row := range g.Logits {
		for _, x := range row {
			rows[i] = append(rows[i], float32(x)) // -1e300 becomes -Inf
		}
	}
	for i, c := range g.Cases {
		s := Sampler{Temperature: c.Temperature, TopK: c.TopK, TopP: c.TopP, MinP: c.MinP, RepetitionPenalty: c.Penalty}
		logits := rows[c.Row]
		scores := s.adjust(logits, g.History, nil)
		assert.Equal(t, c.Greedy, greedy(scores), "case %d", i)
		if c.Temperature == 0 {
			id, err := s.Next(logits, g.History, nil)
			require.NoError(t, err)
			assert.Equal(t, c.Greedy, id)
			assert.InEpsilon(t, c.Probs[place(c.Kept, id)], s.Prob(), 1e-5)
			continue
		}
		s.start(scores)
		s.warp()
		top := s.best().score
		mass := s.mass(top)
		var kept []int32
		var probs []float64
		for _, k := range s.kept {
			if p := weight(k.score, top) / mass; p > 0 {
				kept = append(kept, k.id)
				probs = append(probs, p)
			}
		}
		assert.Equal(t, c.Kept, kept, "case %d", i)
		require.Len(t, probs, len(c.Probs))
		for j := range probs {
			assert.InDelta(t, c.Probs[j], probs[j], 1e-6)
		}
	}
}

func place(ids []int32, id int32) int {
	for i, x := range ids {
		if x == id {
			return i
		}
	}
	return -1
}

// The set that top-p keeps with a heap equals the result of a full sort.
func TestTopPBySort(t *testing.T) {
	logits := make([]float32, 3000)
	s := Sampler{Temperature: 1, TopP: 0.9}
	for i := range logits {
		logits[i] = float32(8 * s.uniform(uint64(i)))
	}
	for _, p := range []float64{0.02, 0.3, 0.9, 0.9999} {
		s.TopP = p
		s.start(logits)
		all := append([]candidate(nil), s.kept...)
		mass := s.mass(s.best().score)
		top := s.best().score
		s.warp()
		// Every token that is out has no more than 1-p of the mass at or below it.
		in := make(map[int32]bool)
		least := float32(math.Inf(1))
		for _, c := range s.kept {
			in[c.id] = true
			least = min(least, c.score)
		}
		var below float64
		for _, c := range all {
			assert.Equal(t, c.score >= least, in[c.id])
			if !in[c.id] {
				below += weight(c.score, top) / mass
			}
		}
		assert.LessOrEqual(t, below, 1-p+1e-6)
		assert.Greater(t, below+weight(least, top)/mass, 1-p-1e-6)
	}
}
