//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/tensor"
)

// Quantize makes blocks of n elements of x on the device. report is what kernels found
// wrong: the number of a piece plus one, a place and a value.
func (d *Device) Quantize(t testing.TB, x []byte, n int, from, to tensor.DType) (blocks []byte, report [3]int64) {
	t.Helper()
	k := gpu.NewQuantizer(from, to)
	require.NotNil(t, k)
	blocks = make([]byte, to.Bytes(n))
	trap := make([]byte, 8*len(report))
	sides := [][]byte{blocks, x, trap}
	var at [3]gpu.Pointer
	var buffers [3]backend.Buffer
	for i, side := range sides {
		b, err := d.Alloc(len(side))
		require.NoError(t, err)
		buffers[i] = b
		_, err = d.Upload(b, 0, side)
		require.NoError(t, err)
		at[i] = b.(*gpu.Buffer).At(0)
		defer b.Free()
	}
	l := make([]gpu.Launch, 1)
	k.Quantize(&l[0], at[0], at[1], n, at[2], 6)
	pipeline, err := d.shaders.kernel(k)
	require.NoError(t, err)
	l[0].Function = pipeline.handle()
	err = d.Do(func() error {
		pipeline.learn([]gpu.Kind{gpu.PointerKind, gpu.PointerKind, gpu.PointerKind, gpu.LongKind, gpu.IntKind})
		_, err := d.timed(l)
		return err
	})
	require.NoError(t, err)
	for i, side := range sides {
		f, err := d.Download(side, buffers[i], 0)
		require.NoError(t, err)
		require.NoError(t, f.Wait(t.Context()))
	}
	for i := range report {
		report[i] = int64(binary.LittleEndian.Uint64(trap[8*i:]))
	}
	return blocks, report
}
