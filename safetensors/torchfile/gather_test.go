package torchfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naive makes the bytes of a view element by element.
func naive(storage []byte, t *tensor, swapped bool) (out []byte) {
	item := int(t.dtype.bytes)
	index := make([]int64, len(t.size))
	n := int64(1)
	for _, d := range t.size {
		n *= d
	}
	for range n {
		at := t.offset
		for i := range index {
			at += index[i] * t.stride[i]
		}
		e := slices.Clone(storage[int(at)*item:][:item])
		unit := t.dtype.unit()
		for i := 0; i < item; i += unit {
			if swapped {
				slices.Reverse(e[i : i+unit])
			}
			imaginary := t.dtype.complex() && i > 0
			if t.neg != (t.conj && imaginary) {
				e[i+unit-1] ^= 0x80
			}
		}
		out = append(out, e...)
		for i := len(index) - 1; i >= 0; i-- {
			if index[i]++; index[i] < t.size[i] {
				break
			}
			index[i] = 0
		}
	}
	return out
}

// drawTensor draws a view that lies within a storage of so many bytes.
func drawTensor(t *rapid.T, bytes int64) *tensor {
	d := dtypes[rapid.SampledFrom([]global{"torch.uint8", "torch.int16", "torch.bfloat16", "torch.float32", "torch.int64", "torch.complex64", "torch.float64"}).Draw(t, "dtype")]
	x := &tensor{dtype: d, storage: &storage{key: "0", dtype: d, numel: bytes / d.bytes, count: bytes / d.bytes}}
	left := x.storage.numel - 1
	x.offset = rapid.Int64Range(0, left).Draw(t, "offset")
	left -= x.offset
	for range rapid.IntRange(0, 5).Draw(t, "rank") {
		n := rapid.Int64Range(0, 5).Draw(t, "size")
		stride := rapid.Int64Range(0, 9).Draw(t, "stride")
		if n > 1 && (n-1)*stride > left {
			stride = left / (n - 1)
		}
		if n > 1 {
			left -= (n - 1) * stride
		}
		x.size, x.stride = append(x.size, n), append(x.stride, stride)
	}
	x.neg = d.float > 0 && rapid.Bool().Draw(t, "neg")
	x.conj = d.complex() && rapid.Bool().Draw(t, "conj")
	return x
}

// drawContiguous is drawTensor for views whose elements lie in order.
func drawContiguous(t *rapid.T, x *tensor) {
	step, left := int64(1), x.storage.numel-x.offset
	for i := len(x.size) - 1; i >= 0; i-- {
		if x.size[i] > 0 && step*x.size[i] > left {
			x.size[i] = 1
		}
		x.stride[i] = step
		step *= max(1, x.size[i])
	}
}

// Any view, read in any pieces, is what it is element by element; stored and
// deflated.
func TestGather(t *testing.T) {
	const bytesOfStorage = 480
	data := make([]byte, bytesOfStorage)
	for i := range data {
		data[i] = byte(i*7 + i/256)
	}
	rapid.Check(t, func(t *rapid.T) {
		x := drawTensor(t, bytesOfStorage)
		if rapid.Bool().Draw(t, "contiguous") {
			drawContiguous(t, x)
		}
		swapped := rapid.Bool().Draw(t, "big-endian")
		z := extent{record: "data/0", at: 3, compressed: bytesOfStorage, size: bytesOfStorage}
		file := append([]byte("abc"), data...)
		if z.deflated = rapid.Bool().Draw(t, "deflated"); z.deflated {
			file = append([]byte("abc"), deflate(data)...)
			z.compressed = int64(len(file) - 3)
		}
		c := &checkpoint{swapped: swapped, find: func(*storage) (extent, error) { return z, nil }}
		p, err := c.place("x", x)
		require.NoError(t, err)
		want := naive(data, x, swapped)
		require.EqualValues(t, len(want), p.view.size)
		readers, err := newReaders([]placed{p}, func() (lender, error) { return newMemory(file), nil })
		require.NoError(t, err)
		r := readers[0]
		if p.inPlace {
			require.Nil(t, r)
			require.True(t, bytes.Equal(want, file[p.offset:][:len(want)]))
			return
		}
		for range 4 {
			from := rapid.IntRange(0, len(want)).Draw(t, "from")
			to := rapid.IntRange(from, len(want)+5).Draw(t, "to")
			piece := make([]byte, to-from)
			n, err := r.ReadAt(piece, int64(from))
			if to > len(want) {
				require.ErrorIs(t, err, io.EOF)
			} else if err != nil { // allowed with the last byte only
				require.ErrorIs(t, err, io.EOF)
				require.Equal(t, len(want), to)
			}
			require.Equal(t, min(to, len(want))-from, n)
			require.True(t, bytes.Equal(want[from:from+n], piece[:n]), "%v\n%v", want[from:from+n], piece[:n])
		}
		if g, ok := r.(*gather); ok {
			_, err = g.ReadAt(nil, -1)
			require.ErrorContains(t, err, "-1")
			_, err = g.ReadAt(nil, g.size)
			require.NoError(t, err)
		}
	})
}

// Readers of one deflated record work at the same time and from back to front.
func TestInflatedConcurrently(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdefghijk"), 5000)
	packed := deflate(data)
	z := &inflated{file: newMemory(packed), extent: extent{compressed: int64(len(packed)), size: int64(len(data)), deflated: true}, cache: &cache{}}
	other := &inflated{file: z.file, extent: z.extent, cache: z.cache}
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				at := (g*31337 + (20-i)*4999) % (len(data) - 100)
				var b [100]byte
				if n, err := z.ReadAt(b[:], int64(at)); err != nil || n != 100 || !bytes.Equal(b[:], data[at:at+100]) {
					errs <- fmt.Errorf("ReadAt %d: %d, %w", at, n, err)
				}
				of := []*inflated{z, other}[i%2]
				err := of.withBytes(int64(at), 100, func(b []byte) error {
					if !bytes.Equal(b, data[at:at+100]) {
						return errors.New("other bytes")
					}
					return nil
				})
				if err != nil {
					errs <- err
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	// An error does not stick.
	_, err := z.ReadAt(make([]byte, 10), int64(len(data)-5))
	require.ErrorIs(t, err, ErrZip)
	var b [3]byte
	_, err = z.ReadAt(b[:], 1)
	require.NoError(t, err)
	require.Equal(t, "123", string(b[:]))
}
