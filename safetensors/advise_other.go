//go:build !unix

package safetensors

// advise does nothing: this system takes no advice.
func advise([]byte, Advice) error { return nil }
