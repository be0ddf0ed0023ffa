package safetensors

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestContest(t *testing.T) {
	// rates in bytes per second, by turns
	hold := func(pread, direct []int64) Strategy {
		c := newContest(3*trialShare, candidate{strategy: Pread}, candidate{strategy: Direct, advantage: 1.25})
		for range pread {
			first, trial := c.next()
			require.True(t, trial)
			require.Equal(t, Pread, first)
			second, trial := c.next()
			require.True(t, trial)
			require.Equal(t, Direct, second)
		}
		between, trial := c.next()
		require.False(t, trial, "each has had its turns")
		require.Equal(t, Pread, between)
		for i := range pread {
			c.report(Direct, direct[i], time.Second)
			c.report(Pread, pread[i], time.Second)
		}
		winner, trial := c.next()
		require.False(t, trial)
		assert.Len(t, c.trials(true), 2)
		return winner
	}
	assert.Equal(t, Pread, hold([]int64{10, 10, 10}, []int64{11, 12, 12}), "not fast enough")
	assert.Equal(t, Direct, hold([]int64{10, 10, 10}, []int64{12, 13, 14}))
	assert.Equal(t, Pread, hold([]int64{1, 10, 10}, []int64{1, 2, 100}), "one run says nothing")
}

func TestContestOverLittle(t *testing.T) {
	c := newContest(worthTrying-1, candidate{strategy: Pread}, candidate{strategy: Mmap})
	for range 5 {
		s, trial := c.next()
		assert.Equal(t, Pread, s)
		assert.False(t, trial)
	}
	assert.Empty(t, c.trials(true))
	assert.Equal(t, 1, newContest(worthTrying, candidate{}).rounds)
	assert.Equal(t, mostRounds, newContest(1000, candidate{}).rounds)
}

func TestStrategyNames(t *testing.T) {
	for s := Auto; s <= Direct; s++ {
		parsed, err := ParseStrategy(s.String())
		require.NoError(t, err)
		assert.Equal(t, s, parsed)
	}
	_, err := ParseStrategy("fast")
	require.ErrorIs(t, err, ErrRange)
	assert.ErrorContains(t, err, `"fast", expected one of [auto mmap pread direct]`)
	assert.Equal(t, "Strategy(9)", Strategy(9).String())

	text, err := json.Marshal(LoadStats{Strategy: Direct})
	require.NoError(t, err)
	assert.Contains(t, string(text), `"Strategy":"direct"`)
	var s LoadStats
	require.NoError(t, json.Unmarshal(text, &s))
	assert.Equal(t, Direct, s.Strategy)
	assert.ErrorIs(t, json.Unmarshal([]byte(`{"Strategy":"x"}`), &s), ErrRange)
}
