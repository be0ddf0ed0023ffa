package safetensors

import (
	"slices"
	"sync"
	"time"
)

// Parameters of the Auto strategy.
const (
	// worthTrying is the minimum number of chunks for a trial to pay for itself.
	worthTrying = 8
	// mostRounds is the maximum number of chunks that each candidate reads before
	// one is chosen. All trials together read at most one chunk in trialShare.
	mostRounds = 3
	trialShare = 8
	// mmapAdvantage is the speedup that copying from the mapping needs to win.
	// The difference is small, and the mapping's pages must be dropped
	// afterwards.
	mmapAdvantage = 1.1
	// directAdvantage is the speedup that direct reads need to win: they leave
	// nothing in the page cache for the next start of the program.
	directAdvantage = 1.25
)

// contest finds the fastest read strategy: each candidate reads some of the
// first chunks. No chunk is read twice.
type contest struct {
	mu         sync.Mutex
	candidates []candidate // the first wins unless another one has the speedup it needs
	rounds     int         // chunks per candidate
	decided    bool
	winner     Strategy
}

type candidate struct {
	strategy  Strategy
	advantage float64
	assigned  int       // chunks assigned so far
	rates     []float64 // bytes per second, of the reported trials
}

// newContest returns a contest over the given number of chunks. If there are too
// few chunks for a trial, the first candidate wins.
func newContest(chunks int, candidates ...candidate) *contest {
	return &contest{
		candidates: candidates,
		rounds:     min(max(chunks/trialShare, 1), mostRounds),
		decided:    chunks < worthTrying,
		winner:     candidates[0].strategy,
	}
}

// rate returns the median rate. The first chunk is slow because it is cold, and
// a chunk that another reader's readahead has cached is too fast.
func (c *candidate) rate() float64 {
	if len(c.rates) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(c.rates))[len(c.rates)/2]
}

// next returns the strategy for the next chunk and whether the read is a trial,
// which the caller must report.
func (c *contest) next() (s Strategy, trial bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decided {
		return c.winner, false
	}
	next := &c.candidates[0]
	for i := range c.candidates {
		if c.candidates[i].assigned < next.assigned {
			next = &c.candidates[i]
		}
	}
	if next.assigned == c.rounds { // the trials of all candidates are under way
		return c.candidates[0].strategy, false
	}
	next.assigned++
	return next.strategy, true
}

// report records the duration of a trial.
func (c *contest) report(s Strategy, bytes int64, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	complete := true
	for i := range c.candidates {
		x := &c.candidates[i]
		if x.strategy == s {
			x.rates = append(x.rates, float64(bytes)/max(took, 1).Seconds())
		}
		complete = complete && len(x.rates) == c.rounds
	}
	if !complete {
		return
	}
	best := c.candidates[0].rate()
	c.decided, c.winner = true, c.candidates[0].strategy
	for i := range c.candidates[1:] {
		x := &c.candidates[i+1]
		if x.rate() >= best*x.advantage {
			best, c.winner = x.rate(), x.strategy
		}
	}
}

// trials returns the measured rates.
func (c *contest) trials(cached bool) []Trial {
	c.mu.Lock()
	defer c.mu.Unlock()
	var trials []Trial
	for i := range c.candidates {
		if x := &c.candidates[i]; len(x.rates) > 0 {
			trials = append(trials, Trial{Strategy: x.strategy, Cached: cached, Chunks: len(x.rates), BytesPerSecond: x.rate()})
		}
	}
	return trials
}
