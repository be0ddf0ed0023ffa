package safetensors

import (
	"slices"
	"sync"
	"time"
)

// What Auto goes by.
const (
	// worthTrying is the number of chunks from which on a trial pays for itself.
	worthTrying = 8
	// mostRounds is how many chunks each candidate reads before one is chosen, one
	// of every trialShare at most.
	mostRounds = 3
	trialShare = 8
	// mmapAdvantage is how much faster copying from the mapping must be: the
	// difference is small, and the mapping's pages must be dropped afterwards.
	mmapAdvantage = 1.1
	// directAdvantage is how much faster reading past the page cache must be: it
	// leaves nothing there for the next start of the program.
	directAdvantage = 1.25
)

// contest finds the fastest way to read by having each of the candidates read
// some of the first chunks. Nothing is read twice.
type contest struct {
	mu         sync.Mutex
	candidates []candidate // the first wins unless another has the advantage it needs
	rounds     int         // chunks for each of them
	decided    bool
	winner     Strategy
}

type candidate struct {
	strategy  Strategy
	advantage float64
	given     int       // chunks
	rates     []float64 // bytes per second, of those reported
}

// newContest holds a contest over so many chunks, or lets the first candidate win
// where that is too few.
func newContest(chunks int, candidates ...candidate) *contest {
	return &contest{
		candidates: candidates,
		rounds:     min(max(chunks/trialShare, 1), mostRounds),
		decided:    chunks < worthTrying,
		winner:     candidates[0].strategy,
	}
}

// rate is the median: the first chunk pays for what is cold, and what another
// reader's readahead has brought is too fast.
func (c *candidate) rate() float64 {
	if len(c.rates) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(c.rates))[len(c.rates)/2]
}

// next returns the strategy to read the next chunk by, and whether it is a trial
// that is to be reported.
func (c *contest) next() (s Strategy, trial bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decided {
		return c.winner, false
	}
	next := &c.candidates[0]
	for i := range c.candidates {
		if c.candidates[i].given < next.given {
			next = &c.candidates[i]
		}
	}
	if next.given == c.rounds { // all others are still being read
		return c.candidates[0].strategy, false
	}
	next.given++
	return next.strategy, true
}

// report says how long a trial took.
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

// trials returns what was measured.
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
