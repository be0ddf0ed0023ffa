package batching

import (
	"cmp"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/pages"
	"github.com/lorafuse/lorafuse/internal/serve/share"
	"github.com/lorafuse/lorafuse/lora"
)

// Step describes one run.
type Step struct {
	Tokens int // tokens read
	Prompt int // of these, tokens of prompts and of texts that are read again
	Texts  int
	Took   time.Duration
}

// Stats describes the current activity of an engine, or of several together.
type Stats struct {
	// Running and Waiting count requests by adapter, sorted by name; the name is empty for the base
	// model. Preempted requests count as waiting.
	Running, Waiting []AdapterCount
	// Resident holds the sorted names of adapters on the device; MaxResident is their maximum
	// number.
	Resident    []string
	MaxResident int
	Pages       pages.Stats
	PageRows    int
	PageBytes   int    // device memory per page
	Preemptions uint64 // times that a text lost its pages to others
	// Time is the time used by serving and by concurrent training.
	Time share.Used
}

// AdapterCount is the number of requests for an adapter.
type AdapterCount struct {
	Adapter  string
	Requests int
}

// Stats returns the state of the engine after the last step.
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
		if slices.ContainsFunc(info.Versions, func(v lora.VersionInfo) bool { return slices.Contains(v.Devices, e.device) }) {
			s.Resident = append(s.Resident, info.Name)
		}
	}
	return s
}

// publish updates what Stats returns.
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
