package safetensors

import (
	"fmt"
	"strings"
	"time"
)

// LoadStats describes a load and why it used its strategy.
type LoadStats struct {
	Strategy Strategy      // strategy that read most bytes
	Why      string        // reason for the strategy
	Threads  int           // number of readers
	Bytes    int64         // size of the tensors
	Read     int64         // bytes read from the files, including gaps between tensors
	Elapsed  time.Duration // duration of the call of Load
	Files    []FileStats   // in the order in which the views refer to them
	Trials   []Trial       // measurements of Auto
}

// FileStats describes how a load read one file.
type FileStats struct {
	Path     string
	Strategy Strategy // strategy that read most of its bytes
	InPlace  bool     // the sink uses the mapping
	Why      string
	// Cached is the fraction of the file that was in the page cache before the
	// load, estimated from a sample; negative if unknown.
	Cached  float64
	Bytes   int64         // size of the tensors
	Read    int64         // bytes read from the file
	Elapsed time.Duration // from its first chunk to the end of its last
}

// Trial is a measurement of a strategy on chunks of the load.
type Trial struct {
	Strategy       Strategy
	Cached         bool // whether the chunks were in the page cache
	Chunks         int
	BytesPerSecond float64 // the median over chunks, of a single reader
}

// BytesPerSecond returns the number of tensor bytes loaded per second.
func (s *LoadStats) BytesPerSecond() float64 { return perSecond(s.Bytes, s.Elapsed) }

// BytesPerSecond returns the number of tensor bytes loaded per second. Other
// files may have been loaded at the same time.
func (s *FileStats) BytesPerSecond() float64 { return perSecond(s.Bytes, s.Elapsed) }

func perSecond(bytes int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(bytes) / d.Seconds()
}

// String returns the statistics in one line, without the files.
func (s *LoadStats) String() string {
	return fmt.Sprintf("%.3f GB in %v: %.2f GB/s by %v (%s), %d threads, %d files",
		float64(s.Bytes)/1e9, s.Elapsed.Round(10*time.Microsecond), s.BytesPerSecond()/1e9, s.Strategy, s.Why, s.Threads, len(s.Files))
}

// stats returns the statistics of the load.
func (l *loader) stats(took time.Duration) LoadStats {
	s := LoadStats{Threads: l.threads, Elapsed: took}
	s.Trials = append(l.cached.trials(true), l.uncached.trials(false)...)
	var by [len(strategies)]int64
	var most int64
	for _, f := range l.feeds {
		file := f.stats(l.strategy, l.whyChosen(f, s.Trials))
		s.Bytes += file.Bytes
		s.Read += file.Read
		by[file.Strategy] += file.Read
		if by[file.Strategy] > most {
			most, s.Strategy = by[file.Strategy], file.Strategy
		}
		s.Files = append(s.Files, file)
	}
	for i := range s.Files {
		if s.Files[i].Strategy == s.Strategy {
			s.Why = s.Files[i].Why
			break
		}
	}
	return s
}

// whyChosen returns the reasons for Auto's choice.
func (l *loader) whyChosen(f *feed, trials []Trial) string {
	var b strings.Builder
	switch {
	case f.share < 0:
		b.WriteString("the system does not say what is cached")
	default:
		fmt.Fprintf(&b, "%.0f %% cached", 100*f.share)
	}
	if f.noDirect != "" {
		b.WriteString("; no direct reads: " + f.noDirect)
	}
	if len(trials) == 0 {
		b.WriteString("; too little for trials")
	}
	for _, t := range trials {
		state := "cached"
		if !t.Cached {
			state = "not cached"
		}
		fmt.Fprintf(&b, "; %v %.1f GB/s where %s", t.Strategy, t.BytesPerSecond/1e9, state)
	}
	return b.String()
}
