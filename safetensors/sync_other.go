//go:build !unix

package safetensors

// syncFolder does nothing where folders cannot be synced.
func syncFolder(string) error { return nil }
