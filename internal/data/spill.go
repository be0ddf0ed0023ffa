package data

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/lorafuse/lorafuse/tensor"
)

// inMemory is the default of Options.InMemory: 32 MiB of tokens.
const inMemory = 8 << 20

// lossBit is set in words of tokens that carry loss. The other bits are the token id.
const lossBit = math.MinInt32

// store holds the tokens of a dataset, a word for each: in memory or, from a number of tokens on, in a file. Only whole
// rows are moved to the file, so that each row is in one of the two. Once filled, it is safe for concurrent use.
type store struct {
	words   []int32 // tokens from spilled on
	spilled int
	file    *os.File // nil if all tokens are in memory

	mu     sync.Mutex
	failed error // of the file
}

// len returns the number of tokens.
func (s *store) len() int { return s.spilled + len(s.words) }

// spill moves all tokens to the file.
func (s *store) spill(dir string) error {
	if s.file == nil {
		f, err := createSpill(dir)
		if err != nil {
			return fmt.Errorf("data: the token cache: %w", err)
		}
		s.file = f
	}
	if _, err := s.file.WriteAt(tensor.BytesOf(s.words), int64(s.spilled)*4); err != nil {
		return fmt.Errorf("data: the token cache: %w", err)
	}
	s.spilled, s.words = s.spilled+len(s.words), s.words[:0]
	return nil
}

// createSpill creates the file. It has no name where a system allows that, so that nothing remains of it.
func createSpill(dir string) (*os.File, error) {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if dir = filepath.Join(cache, "lorafuse"); err != nil || os.MkdirAll(dir, 0o700) != nil {
			dir = os.TempDir()
		}
	}
	f, err := os.CreateTemp(dir, "tokens-*")
	if err == nil {
		_ = os.Remove(f.Name()) // fails on Windows
	}
	return f, err
}

// buffers are buffers for rows from the file.
var buffers = sync.Pool{New: func() any { return new([]int32) }}

// use calls f with the words of tokens in [from, to), which belong to whole rows. They are valid until f returns.
func (s *store) use(from, to int, f func(words []int32)) {
	if from >= s.spilled {
		f(s.words[from-s.spilled : to-s.spilled])
		return
	}
	buf := buffers.Get().(*[]int32)
	defer buffers.Put(buf)
	if cap(*buf) < to-from {
		*buf = make([]int32, to-from)
	}
	words := (*buf)[:to-from]
	if _, err := s.file.ReadAt(tensor.BytesOf(words), int64(from)*4); err != nil {
		clear(words)
		s.mu.Lock()
		s.failed = errors.Join(s.failed, fmt.Errorf("data: the token cache: %w", err))
		s.mu.Unlock()
	}
	f(words)
}

// each calls f with all words, in order, in chunks that are valid until f returns.
func (s *store) each(f func(words []int32)) {
	const chunk = 1 << 14
	for from := 0; from < s.len(); {
		to := min(from+chunk, s.len())
		if from < s.spilled {
			to = min(to, s.spilled)
		}
		s.use(from, to, f)
		from = to
	}
}

// err returns the first error of reading the file. Rows read since then are wrong.
func (s *store) err() error {
	if s.file == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// idOf returns the token id of a word.
func idOf(word int32) int32 { return word &^ lossBit }

// labelOf returns the label of a word.
func labelOf(word int32) int32 {
	if word >= 0 {
		return Ignore
	}
	return idOf(word)
}
