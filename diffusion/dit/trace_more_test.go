package dit_test

import (
	"path/filepath"
	"testing"
)

// readers read the samples of the cases whose files have forms of their own.
var readers = map[string]func(t testing.TB, name string) golden{
	"zimage": readZImage, "flux2": readGolden, "qwenimage21": readQwenImage21, "kandinsky5": readKandinsky,
}

// TestMoreTraces is TestTraces of these cases.
func TestMoreTraces(t *testing.T) {
	for name, read := range readers {
		for _, checkpointing := range []bool{false, true} {
			t.Run(name+map[bool]string{true: "/checkpointing"}[checkpointing], func(t *testing.T) {
				repeat(t, read(t, name), filepath.Join(testdata, name, "train"), checkpointing)
			})
		}
	}
}
