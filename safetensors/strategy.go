package safetensors

import "fmt"

// Strategy is a method of reading bytes from a file into memory.
type Strategy uint8

const (
	// Auto chooses for each chunk, depending on whether it is in the page cache
	// and which strategy was fastest for the first chunks.
	Auto Strategy = iota
	// Mmap copies from the mapping. For an InPlaceSink it only maps the pages.
	Mmap
	// Pread reads with pread(2), or with the io.ReaderAt of a file that is not
	// mapped.
	Pread
	// Direct bypasses the page cache with O_DIRECT. Use it for files that are not
	// cached and should not be.
	Direct
	// No strategy uses io_uring: a chunk is many kernel requests already, so a
	// few readers fill a disk's queue as well as a ring would, and hardened
	// containers disable io_uring.
)

var strategies = [...]string{Auto: "auto", Mmap: "mmap", Pread: "pread", Direct: "direct"}

// String returns the name of the strategy in lower case.
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

// MarshalText implements encoding.TextMarshaler.
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Strategy) UnmarshalText(text []byte) (err error) {
	*s, err = ParseStrategy(string(text))
	return err
}
