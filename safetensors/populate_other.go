//go:build !linux

package safetensors

// mapPages returns false: this system has no such call.
func mapPages([]byte) bool { return false }
