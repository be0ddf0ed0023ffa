package bench

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// actor is a task that writes down what it is asked to do.
type actor struct {
	name   string
	script *[]string
	fails  int // the sample that fails, counted from 1
	taken  int
}

func (a *actor) say(what string) { *a.script = append(*a.script, what+" "+a.name) }

func (a *actor) begin(context.Context) (Sampler, error) {
	a.say("begin")
	if a.fails < 0 {
		return nil, errors.New("broke")
	}
	return a, nil
}

func (a *actor) Sample(context.Context) (float64, error) {
	a.say("sample")
	if a.taken++; a.taken == a.fails {
		return 0, errors.New("fell over")
	}
	return float64(a.taken), nil
}

func (a *actor) Close() error {
	a.say("close")
	return nil
}

func cast(script *[]string, group, input string, actors ...*actor) (tasks []Task) {
	for _, a := range actors {
		a.script = script
		row := &Row{Group: group, Program: a.name, Name: "act", Input: input}
		tasks = append(tasks, Task{Row: row, Begin: a.begin, Marks: []Mark{{Name: a.name, Row: row.ID(), FlopPeak: 1}}})
	}
	return tasks
}

// Those of a group and an input take turns; others begin when these are done.
func TestTurns(t *testing.T) {
	var script []string
	tasks := append(cast(&script, "one", "small", &actor{name: "a"}, &actor{name: "b"}), cast(&script, "one", "big", &actor{name: "c"})...)
	tasks = append(tasks, cast(&script, "two", "big", &actor{name: "d"})...)
	var steps []string
	var saved []int
	turns := Turns{
		Save: func(r *Report) error { saved = append(saved, len(r.Rows)); return nil },
		Runs: 2, Progress: func(done, total int) { steps = append(steps, fmt.Sprintf("%d/%d", done, total)) },
		Between: func() error { script = append(script, "between"); return nil },
	}
	tasks, err := turns.Select(tasks)
	require.NoError(t, err)
	var r Report
	require.NoError(t, turns.Measure(t.Context(), tasks, &r))
	assert.Equal(t, []string{
		"begin a", "sample a", "begin b", "sample b", "between", "sample a", "sample b", "sample a", "sample b", "close a", "close b",
		"begin c", "sample c", "sample c", "sample c", "close c",
		"begin d", "sample d", "between", "sample d", "sample d", "close d",
	}, script)
	assert.Equal(t, []string{"1/8", "2/8", "3/8", "4/8", "5/8", "6/8", "7/8", "8/8"}, steps)
	assert.Equal(t, []int{2, 3, 4}, saved, "whenever rows have come")
	require.Len(t, r.Rows, 4)
	assert.Equal(t, []float64{2, 3}, r.Rows[0].Seconds, "the first sample is thrown away")
	assert.Len(t, r.Marks, 4)
}

// New processes have nothing to warm up.
func TestCold(t *testing.T) {
	var script []string
	turns := Turns{Runs: 2, Cold: true}
	require.NoError(t, turns.Measure(t.Context(), cast(&script, "one", "small", &actor{name: "a"}), &Report{}))
	assert.Equal(t, []string{"begin a", "sample a", "sample a", "close a"}, script)
}

// Around another program everything rests, but never for a process that has ended.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(turns Turns) time.Duration {
			var script []string
			tasks := cast(&script, "one", "small", &actor{name: "a"}, &actor{name: "b"})
			tasks[1].Foreign = true
			start := time.Now()
			require.NoError(t, turns.Measure(t.Context(), tasks, &Report{}))
			return time.Since(start)
		}
		assert.Equal(t, 5*time.Second, took(Turns{Runs: 2, Settle: time.Second}))
		assert.Zero(t, took(Turns{Runs: 2, Settle: time.Second, Cold: true}))
		assert.Zero(t, took(Turns{Runs: 2}))
	})
}

func TestSelect(t *testing.T) {
	var script []string
	tasks := cast(&script, "one", "small", &actor{name: "a"}, &actor{name: "b"}, &actor{name: "a"})
	got, err := (&Turns{Runs: 1}).Select(tasks)
	require.NoError(t, err)
	assert.Len(t, got, 2, "the second a would be the same row")
	got, err = (&Turns{Runs: 1, Only: regexp.MustCompile("one: b")}).Select(tasks)
	require.NoError(t, err)
	require.Len(t, got, 1)
	assert.Equal(t, "b", got[0].Row.Program)
	_, err = (&Turns{Runs: 1, Only: regexp.MustCompile("zebra")}).Select(tasks)
	require.ErrorIs(t, err, ErrOptions)
	assert.ErrorContains(t, err, `no row matches "zebra"`)
	_, err = (&Turns{}).Select(tasks)
	require.ErrorIs(t, err, ErrOptions)
	assert.ErrorContains(t, err, "found 0 runs")
	assert.Empty(t, script, "nothing was begun")
}

// A failure of our own ends it all; another program's is said in its row.
func TestTurnsFail(t *testing.T) {
	for _, fails := range []int{-1, 1, 2} {
		var script []string
		tasks := cast(&script, "one", "small", &actor{name: "a"}, &actor{name: "b", fails: fails})
		turns := Turns{Runs: 2}
		var r Report
		err := turns.Measure(t.Context(), tasks, &r)
		require.ErrorContains(t, err, "one: b: act, small: ")
		assert.Contains(t, script, "close a")

		tasks = cast(&script, "one", "small", &actor{name: "a"}, &actor{name: "b", fails: fails})
		tasks[1].Foreign = true
		r = Report{}
		require.NoError(t, turns.Measure(t.Context(), tasks, &r))
		require.Len(t, r.Rows, 2)
		assert.Len(t, r.Rows[0].Seconds, 2)
		assert.NotEmpty(t, r.Rows[1].Failure)
		assert.Empty(t, r.Rows[1].Seconds)
	}
	// With KeepGoing ours is said in its row too, and its memory is free before the next sample.
	var script []string
	tasks := append(cast(&script, "one", "small", &actor{name: "a", fails: 1}, &actor{name: "b"}), cast(&script, "two", "small", &actor{name: "c"})...)
	turns, r := Turns{Runs: 1, KeepGoing: true}, Report{}
	require.NoError(t, turns.Measure(t.Context(), tasks, &r))
	assert.Equal(t, []string{"begin a", "sample a", "close a", "begin b", "sample b", "sample b", "close b", "begin c", "sample c", "sample c", "close c"}, script)
	require.Len(t, r.Rows, 3)
	assert.Equal(t, "fell over", r.Rows[0].Failure)
	assert.Equal(t, []float64{2}, r.Rows[1].Seconds)

	full := Task{Row: &Row{Program: "torch"}, Foreign: true, Begin: func(context.Context) (Sampler, error) { return nil, fmt.Errorf("peer: %w: of 80 GB", ErrMemory) }}
	require.NoError(t, turns.Measure(t.Context(), []Task{full}, &r))
	assert.Equal(t, ErrMemory.Error(), r.Rows[3].Failure)

	broken := errors.New("no peak")
	turns, script = Turns{Runs: 1, Between: func() error { return broken }}, nil
	require.ErrorIs(t, turns.Measure(t.Context(), cast(&script, "one", "small", &actor{name: "a"}), &Report{}), broken)
}

func TestTurnsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var script []string
	tasks := cast(&script, "one", "small", &actor{name: "a"}, &actor{name: "b"})
	turns := Turns{Runs: 9, Progress: func(done, _ int) {
		if done == 3 {
			cancel()
		}
	}}
	var r Report
	require.ErrorIs(t, turns.Measure(ctx, tasks, &r), context.Canceled)
	assert.Len(t, r.Rows[0].Seconds, 2, "what was measured is kept")
	assert.Contains(t, script, "close b")
}

// What is too quick for a clock is called as often as it takes.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := Repeat(func(_ context.Context, n int) error {
			calls += n
			time.Sleep(time.Duration(n) * 200 * time.Microsecond)
			return nil
		}, 5*time.Millisecond)
		mean, err := s.Sample(t.Context())
		require.NoError(t, err)
		assert.InDelta(t, 200e-6, mean, 1e-9)
		assert.Equal(t, 1+2+4+8+16+32, calls, "first it finds out how often")
		calls = 0
		mean, err = s.Sample(t.Context())
		require.NoError(t, err)
		assert.InDelta(t, 200e-6, mean, 1e-9)
		assert.Equal(t, 32, calls)
		require.NoError(t, s.Close())
	})
	failing := Repeat(func(context.Context, int) error { return errors.New("no") }, time.Millisecond)
	_, err := failing.Sample(t.Context())
	assert.EqualError(t, err, "no")
}
