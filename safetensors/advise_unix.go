//go:build unix

package safetensors

import "golang.org/x/sys/unix"

// advise calls madvise for memory that begins at a page boundary.
func advise(memory []byte, a Advice) error {
	var advice int
	switch a {
	case AdviseNormal:
		advice = unix.MADV_NORMAL
	case AdviseSequential:
		advice = unix.MADV_SEQUENTIAL
	case AdviseRandom:
		advice = unix.MADV_RANDOM
	case AdviseDontNeed:
		advice = unix.MADV_DONTNEED
	case AdviseHugePages:
		advice = adviceHugePages
	}
	if len(memory) == 0 || advice < 0 {
		return nil
	}
	return unix.Madvise(memory, advice)
}
