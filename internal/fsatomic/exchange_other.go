//go:build !linux && !darwin

package fsatomic

import "errors"

// exchange returns errors.ErrUnsupported: this system cannot swap two names
// atomically.
func exchange(a, b string) error { return errors.ErrUnsupported }
