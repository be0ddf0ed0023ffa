//go:build !linux

package safetensors

import "os"

// preallocate does nothing: the system has no call for it.
func preallocate(*os.File, int64) error { return nil }
