package safetensors

import (
	"fmt"
	"strings"
	"time"
)

// LoadStats is what a load has done, and why in that way.
type LoadStats struct {
	Strategy Strategy      // by which most bytes came
	Why      string        // it was this one
	Threads  int           // that read
	Bytes    int64         // of the tensors
	Read     int64         // of the files: what lies between tensors as well
	Elapsed  time.Duration // from the call to the return of Load
	Files    []FileStats   // in the order in which the views name them
	Trials   []Trial       // what Auto has measured
}

// FileStats is what a load has done with one file.
type FileStats struct {
	Path     string
	Strategy Strategy // by which most of its bytes came
	InPlace  bool     // the sink uses the mapping
	Why      string
	// Cached is the share of the file that was in the page cache before, by a
	// sample; negative where the system does not say.
	Cached  float64
	Bytes   int64         // of the tensors
	Read    int64         // of the file
	Elapsed time.Duration // from its first chunk to the end of its last
}

// Trial is how fast a strategy was, on chunks that were to be read anyway.
type Trial struct {
	Strategy       Strategy
	Cached         bool // whether the chunks were in the page cache
	Chunks         int
	BytesPerSecond float64 // the median of what a reader got
}

// BytesPerSecond is how many bytes of tensors were loaded in a second.
func (s *LoadStats) BytesPerSecond() float64 { return perSecond(s.Bytes, s.Elapsed) }

// BytesPerSecond is how many bytes of tensors were loaded in a second, while
// other files may have been loaded as well.
func (s *FileStats) BytesPerSecond() float64 { return perSecond(s.Bytes, s.Elapsed) }

func perSecond(bytes int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(bytes) / d.Seconds()
}

// String is the statistics in one line, without the single files.
func (s *LoadStats) String() string {
	return fmt.Sprintf("%.3f GB in %v: %.2f GB/s by %v (%s), %d threads, %d files",
		float64(s.Bytes)/1e9, s.Elapsed.Round(10*time.Microsecond), s.BytesPerSecond()/1e9, s.Strategy, s.Why, s.Threads, len(s.Files))
}

// stats sums up.
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

// whyChosen says what Auto went by.
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
