package train

import "testing"

// FixProcessMemory makes plans independent of the garbage of other tests.
func FixProcessMemory(t *testing.T, bytes int64) {
	measured := processMemory
	processMemory = func() int64 { return bytes }
	t.Cleanup(func() { processMemory = measured })
}
