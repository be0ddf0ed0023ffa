//go:build !linux && !darwin

package safetensors

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

var errNoDirect = errors.New("no direct I/O on " + runtime.GOOS)

// openDirect fails: this system has no reads that bypass the page cache.
func openDirect(*File) (*os.File, alignment, error) { return nil, alignment{}, errNoDirect }

func readDirect(*os.File, []byte, int64, alignment) (int64, error) {
	return 0, fmt.Errorf("%w: %w", errRefused, errNoDirect)
}
