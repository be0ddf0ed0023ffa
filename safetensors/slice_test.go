package safetensors

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naiveSlice copies bit by bit.
func naiveSlice(data []byte, d DType, shape []int, spans []Span) (part []byte, whole bool) {
	var bits []byte
	index := make([]int, len(shape))
	for n := 0; ; n++ {
		inside := true
		for i, x := range index {
			inside = inside && (i >= len(spans) || spans[i].From <= x && x < spans[i].To)
		}
		if inside {
			for b := n * d.Bits(); b < (n+1)*d.Bits(); b++ {
				bits = append(bits, data[b/8]>>(b%8)&1)
			}
		}
		i := len(shape) - 1
		for ; i >= 0; i-- {
			if index[i]++; index[i] < shape[i] {
				break
			}
			index[i] = 0
		}
		if i < 0 {
			break
		}
	}
	if len(bits)%8 != 0 {
		return nil, false
	}
	part = make([]byte, len(bits)/8)
	for i, b := range bits {
		part[i/8] |= b << (i % 8)
	}
	return part, true
}

func TestSliceIsThatOfANaiveReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.IntRange(1, 6), 0, 5).Draw(t, "shape")
		e := Entry{Name: "x", DType: DType(rapid.IntRange(int(Bool), int(U64)).Draw(t, "dtype")), Shape: shape}
		if e.DType.Bits()%8 != 0 {
			e.Shape = append(e.Shape, 4*rapid.IntRange(1, 3).Draw(t, "last"))
		}
		size, err := e.Size()
		require.NoError(t, err)
		e.Data = rapid.SliceOfN(rapid.Byte(), int(size), int(size)).Draw(t, "data")
		spans := make([]Span, rapid.IntRange(0, len(e.Shape)).Draw(t, "spans"))
		for i := range spans {
			if rapid.Bool().Draw(t, "whole") {
				spans[i] = Span{0, e.Shape[i]}
				continue
			}
			spans[i].From = rapid.IntRange(0, e.Shape[i]).Draw(t, "from")
			spans[i].To = rapid.IntRange(spans[i].From, e.Shape[i]).Draw(t, "to")
		}
		var file bytes.Buffer
		require.NoError(t, Write(&file, []Entry{e}, nil))
		near, err := FromBytes(file.Bytes())
		require.NoError(t, err)
		far, err := OpenReaderAt(bytes.NewReader(file.Bytes()), int64(file.Len()), "far")
		require.NoError(t, err)
		for _, f := range []*File{near, far} {
			v, err := f.Lookup("x")
			require.NoError(t, err)
			s, err := v.Slice(spans...)
			if err != nil {
				require.ErrorIs(t, err, ErrPartialByte)
				require.NotZero(t, e.DType.Bits()%8)
				continue
			}
			want, whole := naiveSlice(e.Data, e.DType, e.Shape, spans)
			require.True(t, whole)
			require.Equal(t, len(want), s.Len())
			got := make([]byte, s.Len())
			require.NoError(t, s.ReadInto(got))
			require.Equal(t, want, append([]byte{}, got...))
			part := s.View()
			require.Equal(t, s.Shape, append([]int{}, part.Shape...))
			require.True(t, bytes.Equal(want, part.Bytes()))
			from := rapid.IntRange(0, len(want)).Draw(t, "at")
			n := rapid.IntRange(0, len(want)-from).Draw(t, "n")
			_, err = s.ReadAt(got[:n], int64(from))
			require.NoError(t, err)
			require.Equal(t, want[from:from+n], append([]byte{}, got[:n]...))
			var b bytes.Buffer
			_, err = s.WriteTo(&b)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, b.Bytes()))
			entry := s.Entry()
			size, err := entry.Size()
			require.NoError(t, err)
			require.Equal(t, int64(len(want)), size)
		}
	})
}

func TestSliceRefuses(t *testing.T) {
	v := lookup(t, openFloats(t, 5), "x")
	for _, spans := range [][]Span{{{-1, 2}}, {{3, 2}}, {{0, 6}}, {{6, 6}}, {{0, 5}, {0, 3}}, {{0, 5}, {0, 2}, {0, 1}}} {
		_, err := v.Slice(spans...)
		assert.ErrorIs(t, err, ErrRange, spans)
		assert.ErrorContains(t, err, "[5 2]")
	}
	s, err := v.Slice(Span{1, 4}, Span{1, 2})
	require.NoError(t, err)
	assert.ErrorIs(t, s.ReadInto(make([]byte, 13)), ErrSize)
	_, err = s.ReadAt(nil, -1)
	assert.ErrorIs(t, err, ErrRange)
	n, err := s.ReadAt(make([]byte, 13), 0)
	assert.Equal(t, 12, n)
	assert.Equal(t, io.EOF, err)
	v.Shape[1] = 1000
	_, err = v.Slice()
	assert.ErrorIs(t, err, ErrSize)
	packed := mustEncode(t, []Entry{{Name: "p", DType: F4, Shape: []int{2, 4}, Data: []byte{1, 2, 3, 4}}}, nil)
	_, err = lookup(t, packed, "p").Slice(Span{0, 2}, Span{1, 3})
	assert.ErrorIs(t, err, ErrPartialByte)
	s, err = lookup(t, packed, "p").Slice(Span{0, 2}, Span{2, 4})
	require.NoError(t, err)
	assert.Equal(t, []byte{2, 4}, s.View().Bytes())
}

// What lies one after the other is one run, whatever the spans; what repeats at
// the same distance is one loop.
func TestSliceLayout(t *testing.T) {
	f := mustEncode(t, []Entry{{Name: "x", DType: U8, Shape: []int{3, 1, 4, 5}, Data: make([]byte, 60)}}, nil)
	for _, c := range []struct {
		spans []Span
		run   int64
		loops []loop
	}{
		{nil, 60, nil},
		{[]Span{{1, 3}}, 40, nil},
		{[]Span{{1, 2}, {0, 1}, {1, 3}}, 10, nil},
		{[]Span{{1, 2}, {0, 1}, {1, 2}, {2, 4}}, 2, nil},
		{[]Span{{0, 3}, {0, 1}, {1, 3}}, 10, []loop{{3, 20}}},
		{[]Span{{0, 3}, {0, 1}, {0, 4}, {2, 4}}, 2, []loop{{12, 5}}},
		{[]Span{{0, 2}, {0, 1}, {0, 4}, {2, 4}}, 2, []loop{{8, 5}}},
		{[]Span{{0, 3}, {0, 1}, {0, 3}, {2, 3}}, 1, []loop{{3, 20}, {3, 5}}},
		{[]Span{{0, 3}, {0, 1}, {2, 3}, {2, 3}}, 1, []loop{{3, 20}}},
		{[]Span{{2, 2}, {0, 1}, {2, 3}}, 0, nil},
	} {
		s, err := lookup(t, f, "x").Slice(c.spans...)
		require.NoError(t, err)
		assert.Equal(t, c.run, s.run, c.spans)
		assert.Equal(t, c.loops, s.loops, c.spans)
		assert.Equal(t, len(c.loops) == 0, s.View().InPlace())
	}
}

// virtual is a tensor that is larger than any test should read: byte i of it is
// a function of i.
type virtual struct {
	mu       sync.Mutex
	reads    int
	bytes    int64
	most     int           // bytes of one read
	now, top int           // reads at a time
	failAt   int64         // a byte that cannot be read, 0 for none
	met      chan struct{} // if not nil, the first read waits here for a second one
}

func virtualByte(i int64) byte { return byte(i>>16 ^ i>>8 ^ i) }

var errVirtual = errors.New("a bad sector")

func (v *virtual) ReadAt(p []byte, off int64) (int, error) {
	v.mu.Lock()
	v.reads++
	v.bytes += int64(len(p))
	v.most = max(v.most, len(p))
	v.now++
	v.top = max(v.top, v.now)
	if v.met != nil && v.reads == 2 {
		close(v.met)
	}
	v.mu.Unlock()
	if v.met != nil {
		select {
		case <-v.met:
		case <-time.After(time.Minute): // reads come one after another: the test fails
		}
	} else {
		time.Sleep(time.Millisecond)
	}
	defer func() { v.mu.Lock(); v.now--; v.mu.Unlock() }()
	if v.failAt > 0 && off <= v.failAt && v.failAt < off+int64(len(p)) {
		return 0, errVirtual
	}
	for i := range p {
		p[i] = virtualByte(off + int64(i))
	}
	return len(p), nil
}

func openVirtual(t *testing.T, v *virtual, shape ...int) *View {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	f, err := OpenExternal(path, []ExternalTensor{{Name: "x", DType: U8, Shape: shape, Reader: v}}, nil)
	require.NoError(t, err)
	return lookup(t, f, "x")
}

// Runs that are far apart are read one by one, several at a time; near ones are
// read together with what is between them, but never much at once.
func TestSliceOfWhatIsReadOnDemand(t *testing.T) {
	for name, c := range map[string]struct {
		shape        []int
		spans        []Span
		reads        int
		bytes        int64
		most, atOnce int
	}{
		"contiguous":      {[]int{1000, 1 << 20}, []Span{{500, 502}}, 1, 2 << 20, 2 << 20, 1},
		"far apart":       {[]int{1000, 1 << 20}, []Span{{0, 20}, {7, 23}}, 20, 320, 16, gatherReaders},
		"near":            {[]int{1000, 1 << 10}, []Span{{0, 1000}, {7, 23}}, 1, 999<<10 + 16, 999<<10 + 16, 1},
		"near, but many":  {[]int{10_000, 1 << 10}, []Span{{0, 10_000}, {7, 23}}, 3, 9_997<<10 + 3*16, 4 << 20, 3},
		"near groups":     {[]int{3, 1 << 20, 1 << 2}, []Span{{0, 3}, {10, 20}, {1, 2}}, 3, 3 * 37, 37, 3},
		"long, far apart": {[]int{2, 16 << 20}, []Span{{0, 2}, {0, 6 << 20}}, 2, 12 << 20, 6 << 20, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := &virtual{}
			if c.atOnce > 1 {
				r.met = make(chan struct{})
			}
			v := openVirtual(t, r, c.shape...)
			s, err := v.Slice(c.spans...)
			require.NoError(t, err)
			got := make([]byte, s.Len())
			require.NoError(t, s.ReadInto(got))
			assert.Equal(t, c.reads, r.reads)
			assert.Equal(t, c.bytes, r.bytes)
			assert.LessOrEqual(t, r.most, max(c.most, 4<<20))
			assert.LessOrEqual(t, r.top, c.atOnce)
			if c.atOnce > 1 {
				assert.Greater(t, r.top, 1)
			}
			s.runs(0, s.size, func(at, length, step, count int64) {
				_, first, _ := s.box.Extent()
				require.Equal(t, int64(nowhere), first)
				for range count {
					for _, i := range []int64{0, length - 1} {
						require.Equal(t, virtualByte(s.box.source.offset+at+i), got[i])
					}
					got = got[length:]
					at += step
				}
			})
			assert.Empty(t, got)
		})
	}
}

func TestSliceOfWhatCannotBeRead(t *testing.T) {
	r := &virtual{failAt: 5<<20 + 10}
	v := openVirtual(t, r, 1000, 1<<20)
	for _, spans := range [][]Span{{{0, 1000}, {7, 23}}, {{5, 6}}, {{0, 1000}, {0, 4}}} {
		r.reads = 0
		s, err := v.Slice(spans...)
		require.NoError(t, err)
		err = s.ReadInto(make([]byte, s.Len()))
		if spans[0].To == 1000 && spans[1].To == 4 {
			assert.NoError(t, err, "the bad bytes are not wanted")
			continue
		}
		assert.ErrorIs(t, err, errVirtual)
		assert.ErrorIs(t, err, ErrFault)
		assert.Regexp(t, `tensor "x": byte 524288\d of the reader: file could not be read: a bad sector$`, err.Error())
		assert.Equal(t, 1, strings.Count(err.Error(), `tensor "x"`), err)
		assert.Less(t, r.reads, 500, "reads end with the first that fails")
		_, err = s.View().Hold()
		assert.ErrorIs(t, err, errVirtual)
		_, err = s.WriteTo(io.Discard)
		assert.ErrorIs(t, err, errVirtual)
	}
	near := openVirtual(t, &virtual{failAt: 5000}, 1000, 100)
	s, err := near.Slice(Span{0, 1000}, Span{7, 23})
	require.NoError(t, err)
	assert.ErrorIs(t, s.ReadInto(make([]byte, s.Len())), errVirtual, "in a gap that is read over")
	require.NoError(t, near.file.Close())
	assert.ErrorIs(t, s.ReadInto(make([]byte, s.Len())), ErrClosed)
}

// Of a large tensor that is read on demand, little is in memory while it is
// written.
func TestWriteToInPieces(t *testing.T) {
	r := &virtual{}
	v := openVirtual(t, r, 20<<20)
	var n int64
	written, err := v.WriteTo(writerFunc(func(p []byte) (int, error) {
		for _, i := range []int{0, len(p) / 3, len(p) - 1} {
			assert.Equal(t, virtualByte(n+int64(i)), p[i])
		}
		n += int64(len(p))
		return len(p), nil
	}))
	require.NoError(t, err)
	assert.Equal(t, int64(20<<20), written)
	assert.Equal(t, readChunk, r.most)
	broken := errors.New("broken")
	written, err = v.WriteTo(writerFunc(func(p []byte) (int, error) { return 5, broken }))
	assert.ErrorIs(t, err, broken)
	assert.Equal(t, int64(5), written)
}
