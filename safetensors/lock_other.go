//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package safetensors

import (
	"errors"
	"os"
)

// tryLock fails: this system has no locks that end with the process.
func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }
