//go:build !linux && !darwin

package fsatomic

import "errors"

// exchange swaps two names in one step, or returns errors.ErrUnsupported.
func exchange(a, b string) error { return errors.ErrUnsupported }
