package telemetry

import (
	"sync"
	"time"
)

// Sampler reads samples in the background, because some device values take tens of milliseconds to read.
type Sampler struct {
	m    *Meter
	stop chan struct{}
	done chan struct{}

	mu   sync.Mutex
	last Sample
}

// Start starts a sampler that reads a sample now, and then one per interval.
func Start(m *Meter, every time.Duration) *Sampler {
	s := &Sampler{m: m, stop: make(chan struct{}), done: make(chan struct{}), last: m.Read()}
	go s.run(every)
	return s
}

func (s *Sampler) run(every time.Duration) {
	defer close(s.done)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			now := s.m.Read()
			s.mu.Lock()
			s.last = now
			s.mu.Unlock()
		}
	}
}

// Last returns the newest sample.
func (s *Sampler) Last() Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Close ends the sampling. It must be called once, before the meter is closed.
func (s *Sampler) Close() {
	close(s.stop)
	<-s.done
}
