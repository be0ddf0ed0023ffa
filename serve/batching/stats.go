package batching

import (
	"cmp"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/serve/pages"
	"github.com/lorafuse/lorafuse/serve/share"
)

// Step describes one run.
type Step struct {
	Tokens int // that were read
	Prompt int // of these, the ones of prompts, and of texts that are read again
	Texts  int
	Took   time.Duration
}

// Stats describes the current activity of an engine.
type Stats struct {
	// Running and Waiting count requests by the adapter that they name, empty for the
	// model alone, sorted by it. One that has lost its pages waits.
	Running, Waiting []AdapterCount
	// Resident are the names of adapters on the device, sorted, and MaxResident is how
	// many there may be.
	Resident    []string
	MaxResident int
	Pages       pages.Stats
	PageRows    int
	PageBytes   int    // memory of a page on the device
	Preemptions uint64 // texts that lost their pages to others, and were read again
	// Time is the time used by serving and by concurrent training.
	Time share.Used
}

// AdapterCount is the number of requests for an adapter.
type AdapterCount struct {
	Adapter  string
	Requests int
}

// Stats describes the present, as of the last step.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	s := e.stats
	s.Running = slices.Clone(s.Running)
	waiting := map[string]int{}
	for _, c := range s.Waiting {
		waiting[c.Adapter] += c.Requests
	}
	for _, f := range e.waiting.flows {
		for _, t := range f.waiting {
			waiting[t.r.Adapter]++
		}
	}
	e.mu.Unlock()
	s.Waiting, s.Time = counts(waiting), e.gate.Used()
	s.PageRows, s.PageBytes, s.MaxResident = e.options.PageRows, e.machine.pageBytes, e.options.Adapters.MaxResident
	for _, info := range e.registry.List() {
		if slices.ContainsFunc(info.Versions, func(v lora.VersionInfo) bool { return v.Where == lora.OnDevice }) {
			s.Resident = append(s.Resident, info.Name)
		}
	}
	return s
}

// publish lets Stats see what has changed.
func (e *Engine) publish() {
	busy := map[*request]bool{}
	running, parked := map[string]int{}, map[string]int{}
	for _, t := range e.running {
		if !busy[t.r] {
			busy[t.r] = true
			running[t.r.Adapter]++
		}
	}
	for _, t := range e.parked {
		if !busy[t.r] {
			busy[t.r] = true
			parked[t.r.Adapter]++
		}
	}
	e.mu.Lock()
	e.stats.Running, e.stats.Waiting, e.stats.Pages = counts(running), counts(parked), e.pool.Stats()
	e.mu.Unlock()
}

func counts(by map[string]int) (all []AdapterCount) {
	for name, n := range by {
		all = append(all, AdapterCount{name, n})
	}
	slices.SortFunc(all, func(a, b AdapterCount) int { return cmp.Compare(a.Adapter, b.Adapter) })
	return all
}
