package convert

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// BenchmarkStream is the speed of what is done to a tensor on its way, without
// reading and writing files.
func BenchmarkStream(b *testing.B) {
	in := large(b, filepath.Join(b.TempDir(), "in.safetensors"), safetensors.F32)
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.F8E4M3, tensor.F64} {
		b.Run(d.String(), func(b *testing.B) {
			w, err := newWriter(b.Context(), open(b, in), Options{DType: d, Threads: 1})
			require.NoError(b, err)
			b.SetBytes(int64(w.targets[1].view.Len()))
			for b.Loop() {
				require.NoError(b, w.stream(w.targets[1])(io.Discard))
			}
		})
	}
}
