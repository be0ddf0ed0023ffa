//go:build cuda && linux

package cuda

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/cu"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// drawn is a file of matrices of bytes.
func drawn(t *rapid.T) []*safetensors.View {
	var header []string
	at := 0
	for i := range rapid.IntRange(1, 8).Draw(t, "tensors") {
		rows, cols := rapid.IntRange(0, 9).Draw(t, "rows"), rapid.IntRange(1, 300).Draw(t, "columns")
		header = append(header, fmt.Sprintf(`"t%d":{"dtype":"U8","shape":[%d,%d],"data_offsets":[%d,%d]}`, i, rows, cols, at, at+rows*cols))
		at += rows * cols
	}
	text := "{" + strings.Join(header, ",") + "}"
	f, err := safetensors.FromBytes(append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), make([]byte, at)...))
	require.NoError(t, err)
	views, err := f.Views()
	require.NoError(t, err)
	return views
}

// What is split off, and what is left, is all of the cargo: every byte once, and
// at its place.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []cargo
		var want []string
		off := 0
		places := func(cargo []cargo) (list []string) {
			for _, c := range cargo {
				_, begin, length := c.view.Extent()
				for i := range length {
					list = append(list, fmt.Sprint(begin+i, "→", c.off+int(i)))
				}
			}
			return list
		}
		for _, v := range drawn(t) {
			all = append(all, cargo{v, off})
			off += v.Len() + rapid.IntRange(0, 64).Draw(t, "gap")
		}
		want = places(all)
		bytes := int64(rapid.IntRange(0, 3000).Draw(t, "bytes"))
		some, rest := split(all, bytes)
		require.ElementsMatch(t, want, append(places(some), places(rest)...))
		if n := bytesOf(some); n > bytes { // a tensor that has no row to be cut behind
			require.Greater(t, int64(some[len(some)-1].view.Len()), bytes-(n-int64(some[len(some)-1].view.Len())))
		}
	})
}

// Copies of windows are those of the whole, cut; each byte of each part goes to
// its place once.
func TestStretches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &shipment{loading: &loading{}, block: &gpu.Block{At: 1 << 20}}
		var parts []safetensors.Part
		want := map[int64]cu.DevicePtr{}
		at, off := int64(0), 0
		for i := range rapid.IntRange(1, 6).Draw(t, "parts") {
			at += int64(rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "hole"))
			off += rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "gap")
			n, from := int64(rapid.IntRange(1, 40).Draw(t, "length")), int64(rapid.IntRange(0, 3).Draw(t, "from"))
			s.cargo = append(s.cargo, cargo{off: off - int(from)})
			parts = append(parts, safetensors.Part{View: i, From: from, At: at, Length: n})
			for j := range n {
				want[at+j] = cu.DevicePtr(int64(s.block.At) + int64(off) + j)
			}
			at, off = at+n, off+int(n)
		}
		all := s.stretches(parts)
		require.LessOrEqual(t, len(all), len(parts))
		got := map[int64]cu.DevicePtr{}
		step := int64(rapid.IntRange(1, 100).Draw(t, "window"))
		for from := int64(0); from < at; from += step {
			for _, x := range within(all, from, min(from+step, at)) {
				for j := range x.n {
					require.NotContains(t, got, from+x.from+j)
					got[from+x.from+j] = x.to + cu.DevicePtr(j)
				}
			}
		}
		require.Equal(t, want, got)
	})
}

// Another way must be faster than the ring by some margin, and a way that failed
// is none.
func TestJudge(t *testing.T) {
	ring := backend.LoadTrial{Mode: backend.LoadRing, BytesPerSecond: 10e9}
	for want, other := range map[string]backend.LoadTrial{
		"ring: the first 64.0 MiB: ring 10.00 GB/s, register 11.00 GB/s":     {Mode: backend.LoadRegister, BytesPerSecond: 11e9},
		"register: the first 64.0 MiB: ring 10.00 GB/s, register 12.00 GB/s": {Mode: backend.LoadRegister, BytesPerSecond: 12e9},
		"plain: the first 64.0 MiB: ring 10.00 GB/s, plain 50.00 GB/s":       {Mode: backend.LoadPlain, BytesPerSecond: 50e9},
		"ring: the first 64.0 MiB: ring 10.00 GB/s, register: not here":      {Mode: backend.LoadRegister, Failure: "not here"},
	} {
		mode, why := judge([]backend.LoadTrial{ring, other}, 64<<20)
		require.Equal(t, want, mode.String()+": "+why)
	}
}

// Pieces that are converted are whole rows that end with a block, and no larger
// than they may be where rows allow it.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawn(t)[0]
		rows, cols := v.Shape[0], v.Shape[1]/4
		text := fmt.Sprintf(`{"w":{"dtype":"F32","shape":[%d,%d],"data_offsets":[0,%d]}}`, rows, cols, 4*rows*cols)
		f, err := safetensors.FromBytes(append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), make([]byte, 4*rows*cols)...))
		require.NoError(t, err)
		views, err := f.Views()
		require.NoError(t, err)
		staging := rapid.IntRange(256, 20000).Draw(t, "staging")
		l := &loading{dev: &Device{staging: staging}, weights: []backend.Weight{{View: views[0], DType: tensor.NF4}}}
		require.NoError(t, l.layOut())
		batches, size, err := l.batches([]int{0})
		require.NoError(t, err)
		next := 0
		for _, batch := range batches {
			used := 0
			for _, p := range batch {
				require.Equal(t, used, p.staged)
				used += (p.View.Len() + weightAlign - 1) / weightAlign * weightAlign
				require.Equal(t, next, p.First)
				require.Zero(t, p.First%tensor.QuantBlock)
				require.Equal(t, tensor.NF4.Bytes(p.First), p.at)
				next += p.Elements
			}
			require.LessOrEqual(t, used, size)
			require.True(t, used <= staging || len(batch) == 1)
		}
		require.Equal(t, rows*cols, next)
	})
}
