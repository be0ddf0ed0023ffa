package safetensors

import "fmt"

// Strategy is how bytes get from a file into memory.
type Strategy uint8

const (
	// Auto chooses for each chunk, by whether it is in the page cache and by what
	// was fastest for the first chunks.
	Auto Strategy = iota
	// Mmap copies from the mapping, or, for an InPlaceSink, only has its pages
	// mapped.
	Mmap
	// Pread reads by pread(2), or whatever the io.ReaderAt of a file does that is
	// not mapped.
	Pread
	// Direct reads past the page cache, by O_DIRECT: for files that are not in it
	// and should not be.
	Direct
	// There is no strategy that uses io_uring: a chunk is many requests for the
	// kernel already, so that a few readers keep a disk's queue as full as a ring
	// would, and it is turned off where containers are run with care.
)

var strategies = [...]string{Auto: "auto", Mmap: "mmap", Pread: "pread", Direct: "direct"}

// String is the name of the strategy in lower case.
func (s Strategy) String() string {
	if int(s) >= len(strategies) {
		return fmt.Sprintf("Strategy(%d)", uint8(s))
	}
	return strategies[s]
}

// ParseStrategy is the inverse of String. It fails with ErrRange.
func ParseStrategy(name string) (Strategy, error) {
	for s, known := range strategies {
		if known == name {
			return Strategy(s), nil
		}
	}
	return Auto, fmt.Errorf("safetensors: strategy %s, expected one of %v: %w", quote(name), strategies, ErrRange)
}

// MarshalText is String.
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseStrategy.
func (s *Strategy) UnmarshalText(text []byte) (err error) {
	*s, err = ParseStrategy(string(text))
	return err
}
