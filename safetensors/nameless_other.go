//go:build !linux

package safetensors

import (
	"errors"
	"os"
)

// createNameless fails with errors.ErrUnsupported: the system has no such files.
func createNameless(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func linkNameless(*os.File, string) error { return errors.ErrUnsupported }
