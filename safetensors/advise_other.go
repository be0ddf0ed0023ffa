//go:build !unix

package safetensors

// advise would pass advice on for memory that begins at a page.
func advise([]byte, Advice) error { return nil }
