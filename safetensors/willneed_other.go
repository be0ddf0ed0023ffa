//go:build !unix

package safetensors

func (*mapping) willNeed(begin, end int64) error { return nil }
