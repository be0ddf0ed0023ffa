package tensor

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// anyBytes are bytes without order, but such that every type meets its special
// numbers among them.
func anyBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n+8)
	for i := 0; i < n; i += 4 {
		x := r.Uint32()
		switch r.IntN(4) {
		case 0: // a float32 of common size, and often a tie
			x = x&0x807fffff | (96+r.Uint32N(48))<<23
			x &= ^uint32(0) << (r.IntN(3) * 8)
		case 1:
			x = [...]uint32{0, 1 << 31, infinity, infinity | 1<<31, 0x7fc00000, 0xff800001, 0x477ff000, 0x3f000000, 0x7fffffff, math.MaxUint32, 0x4f000000, 0x5f000000}[r.IntN(12)]
		}
		little.PutUint32(b[i:], x)
	}
	return b[:n:n]
}

// floats are anyBytes seen as numbers.
func floats(seed uint64, n int) []float32 {
	x := make([]float32, n)
	copy(BytesOf(x), anyBytes(seed, 4*n))
	return x
}

// shifted has n bytes between canaries, shift bytes past a line of the cache.
func shifted(n, shift int) (mem, inner []byte) {
	mem = bytes.Repeat([]byte{0xa5}, n+256)
	at := int(-uintptr(unsafe.Pointer(&mem[0]))%64) + 64 + shift
	return mem, mem[at : at+n : at+n]
}

func requireCanaries(t *testing.T, mem, inner []byte) {
	at := int(uintptr(unsafe.Pointer(unsafe.SliceData(inner))) - uintptr(unsafe.Pointer(&mem[0])))
	for i, b := range mem {
		if (i < at || i >= at+len(inner)) && b != 0xa5 {
			require.Failf(t, "wrote outside", "at %d of [%d, %d)", i, at, at+len(inner))
		}
	}
}

func asFloats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// lengths meet every combination of what kernels do at once, and of rests.
func lengths() (n []int) {
	for i := range 150 {
		n = append(n, i)
	}
	return append(n, 191, 192, 200, 255, 256, 300, 1000)
}

// The assembly gives the bits that the portable form gives, for every length
// and place in memory, with and without writing past the cache.
func TestKernelsAreThePortableForm(t *testing.T) {
	usual := streamFrom
	defer func() { streamFrom = usual }()
	for _, streamFrom = range []int{usual, 1} {
		t.Run(fmt.Sprint("streamed from ", streamFrom), func(t *testing.T) {
			each(t, func(t *testing.T) {
				for _, d := range numbers {
					for i, n := range lengths() {
						raw := anyBytes(uint64(n), bytesFor(n, d))
						want := make([]float32, n)
						portableWiden(want, raw, d)
						for _, shift := range []int{0, 4, 4 * (i % 16)} {
							mem, got := shifted(4*n, shift)
							_, src := shifted(len(raw), i%7)
							copy(src, raw)
							require.NoError(t, ToFloat32(asFloats(got), src, d))
							requireCanaries(t, mem, got)
							if !bytes.Equal(BytesOf(want), got) {
								requireSame(t, want, asFloats(got), d)
							}
						}

						x := floats(uint64(n), n)
						back := make([]byte, len(raw))
						portableNarrow(back, x, d)
						for _, shift := range []int{0, 1, i % 64} {
							mem, got := shifted(len(back), shift)
							_, src := shifted(4*n, 4*(i%7))
							copy(src, BytesOf(x))
							require.NoError(t, FromFloat32(got, asFloats(src), d))
							requireCanaries(t, mem, got)
							require.Equal(t, back, got, "%v, %d elements, shifted by %d", d, n, shift)
						}
					}
				}
			})
		})
	}
}

func requireSame(t *testing.T, want, got []float32, d DType) {
	for i := range want {
		require.Equal(t, math.Float32bits(want[i]), math.Float32bits(got[i]), "%v, element %d of %d", d, i, len(want))
	}
}

// Large arrays are written past the cache.
func TestLargeArrays(t *testing.T) {
	const n = 3<<20 + 61*4 // more than 8 MiB of float32 and of BF16 numbers
	x := floats(1, 2*n)[1:]
	x = x[:2*n-4]
	for _, d := range []DType{BF16, F16, F8E4M3, F64} {
		want, got := make([]byte, bytesFor(len(x), d)), make([]byte, bytesFor(len(x), d)+6)[6:]
		portableNarrow(want, x, d)
		require.NoError(t, FromFloat32(got, x, d))
		require.True(t, bytes.Equal(want, got), d)
		wide, back := make([]float32, len(x)+1)[1:], make([]float32, len(x))
		portableWiden(back, want, d)
		require.NoError(t, ToFloat32(wide, want, d))
		require.True(t, bytes.Equal(BytesOf(back), BytesOf(wide)), d)
	}
}

// The assembly agrees with the portable form on whatever there is.
func FuzzConvert(f *testing.F) {
	f.Add(bytes.Repeat([]byte("0123456789abcdef"), 13), uint8(F16), uint8(BF16), uint8(1))
	f.Add(anyBytes(7, 4*96), uint8(F32), uint8(F8E4M3), uint8(0))
	f.Add(anyBytes(8, 4*96), uint8(F32), uint8(F8E5M2), uint8(3))
	f.Add(anyBytes(9, 8*48), uint8(I64), uint8(U8), uint8(2))
	f.Add(anyBytes(10, 8*48), uint8(F64), uint8(U64), uint8(5))
	f.Fuzz(func(t *testing.T, data []byte, a, b, shift uint8) {
		from, to := numbers[int(a)%len(numbers)], numbers[int(b)%len(numbers)]
		data = data[:len(data)/96*96] // four times any number of elements
		n := len(data) / from.Size()
		chosen, usual := active, streamFrom
		defer func() { active, streamFrom = chosen, usual }()
		streamFrom = 64
		var first, firstWide []byte
		for _, active = range available() {
			_, src := shifted(len(data), int(shift%32))
			copy(src, data)
			mem, dst := shifted(bytesFor(n, to), int(shift/32))
			require.NoError(t, Convert(dst, to, src, from))
			requireCanaries(t, mem, dst)
			wide := make([]float64, n)
			require.NoError(t, ToFloat64(wide, src, from))
			bits := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(wide))), 8*n)
			if active == portable {
				first, firstWide = dst, bits
				continue
			}
			require.Equal(t, first, dst, "%v to %v with %v", from, to, active)
			require.Equal(t, firstWide, bits, "%v to F64 with %v", from, active)
		}
	})
}
