//go:build !linux

package load

import (
	"errors"
	"fmt"
)

// Other systems support these calls only in part, and no figures are published for them.

func hugeBuffer(n int) []byte { return make([]byte, n) }

func opMapPopulate(*task) (func() (func() error, error), error) {
	return nil, fmt.Errorf("mmap with MAP_POPULATE: %w", errors.ErrUnsupported)
}

func settle(string) error { return nil }

func warm(int64) {}
