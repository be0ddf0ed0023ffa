package tensor

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goldens are what PyTorch and NumPy give (scripts/make_convert_goldens.py).
type goldens struct {
	Widen map[string]struct {
		Sum  string
		Some [][2]uint32
	}
	Narrow map[string]struct {
		Sums []string
		Some [][2]uint32
	}
	Pairs map[string]string
}

func readGoldens(t *testing.T) (g goldens) {
	raw, err := os.ReadFile("testdata/convert.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &g))
	return g
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// nan is the one code that stands for all NaNs of a type in the goldens.
var nan = map[DType]uint64{F16: 0x7e00, BF16: 0x7fc0, F32: 0x7fc00000, F64: 0x7ff8 << 48,
	F8E5M2: 0x7f, F8E4M3: 0x7f}

// canonical gives all NaNs the same code.
func canonical(t *testing.T, data []byte, d DType) []byte {
	code, ok := nan[d]
	if !ok {
		return data
	}
	values := make([]float64, len(data)/d.Size())
	require.NoError(t, ToFloat64(values, data, d))
	for i, v := range values {
		if math.IsNaN(v) {
			put(data[i*d.Size():], code, d)
		}
	}
	return data
}

// put writes a code of a type of whole bytes.
func put(dst []byte, code uint64, d DType) {
	for i := range d.Size() {
		dst[i] = byte(code >> (8 * i))
	}
}

// codes returns all codes of a type, in order.
func codes(d DType) []byte {
	var all []byte
	for h := range 1 << d.Bits() {
		all = little.AppendUint16(all, uint16(h))[:(h+1)*d.Size()]
	}
	return all
}

func TestWideningIsThatOfPyTorch(t *testing.T) {
	g := readGoldens(t)
	each(t, func(t *testing.T) {
		for name, want := range g.Widen {
			d, err := ParseDType(name)
			require.NoError(t, err)
			raw := codes(d)
			n := len(raw) / d.Size()
			wide, bytes := make([]float32, n), make([]byte, 4*n)
			require.NoError(t, ToFloat32(wide, raw, d))
			require.NoError(t, FromFloat32(bytes, wide, F32))
			canonical(t, bytes, F32)
			for _, s := range want.Some {
				require.Equal(t, s[1], little.Uint32(bytes[4*s[0]:]), "%v 0x%x", d, s[0])
			}
			require.Equal(t, want.Sum, checksum(bytes), d)
		}
	})
}

// narrowed are float32 numbers of 16 exponents, with mantissas on, beside and
// between all that the types have.
func narrowed(high int) []float32 {
	x := make([]float32, 0, 16*1024*6)
	for e := high; e < high+16; e++ {
		for kept := range uint32(1024) {
			for _, low := range []uint32{0, 1, 0x0fff, 0x1000, 0x1001, 0x1fff} {
				x = append(x, math.Float32frombits(uint32(e)<<23|kept<<13|low))
			}
		}
	}
	return x
}

func TestNarrowingIsThatOfPyTorch(t *testing.T) {
	g := readGoldens(t)
	each(t, func(t *testing.T) {
		for high := 0; high < 512; high += 16 {
			x := narrowed(high)
			for name, want := range g.Narrow {
				d, err := ParseDType(name)
				require.NoError(t, err)
				got := make([]byte, len(x)*d.Size())
				require.NoError(t, FromFloat32(got, x, d))
				canonical(t, got, d)
				require.Equal(t, want.Sums[high/16], checksum(got), "%v, sign and exponent from 0x%x on", d, high)
			}
		}
		for name, want := range g.Narrow {
			d, err := ParseDType(name)
			require.NoError(t, err)
			for _, s := range want.Some {
				x := math.Float32frombits(s[0])
				got := make([]byte, 128*d.Size())
				require.NoError(t, FromFloat32(got, filled(128, x), d))
				got = canonical(t, got, d)
				require.Equal(t, little.AppendUint32(nil, s[1])[:d.Size()], got[:d.Size()], "%v of %g", d, x)
			}
		}
	})
}

func filled(n int, v float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = v
	}
	return x
}

func TestPairsAreThoseOfPyTorch(t *testing.T) {
	g := readGoldens(t)
	require.Len(t, g.Pairs, 4*3+8*2+2)
	each(t, func(t *testing.T) {
		for name, want := range g.Pairs {
			a, b, _ := strings.Cut(name, " ")
			from, err := ParseDType(a)
			require.NoError(t, err)
			to, err := ParseDType(b)
			require.NoError(t, err)
			var src []byte
			switch {
			case from == F64:
				src = doubles()
			case to == F32 || to == F64:
				src = integers(from)
			default:
				src = codes(from)
			}
			got := make([]byte, len(src)/from.Size()*to.Size())
			require.NoError(t, Convert(got, to, src, from))
			require.Equal(t, want, checksum(canonical(t, got, to)), name)
		}
	})
}

// word is a number of 64 bits without order.
func word(i int) uint64 {
	x := uint64(i) * 0x9e3779b97f4a7c15
	return x ^ x>>29
}

// integers are numbers of all sizes.
func integers(d DType) (src []byte) {
	for i := range 1 << 16 {
		src = binary.LittleEndian.AppendUint64(src, word(i)>>(64-d.Bits()))[:(i+1)*d.Size()]
	}
	return src
}

// doubles are of the sizes that small types hold, and many in the middle
// between two of them.
func doubles() (src []byte) {
	for i := range 1 << 16 {
		x := word(i)
		bits := (1023-32+x>>58)<<52 | x&(1<<52-1)
		if i%4 == 0 {
			bits = bits >> 41 << 41
		}
		src = little.AppendUint64(src, bits)
	}
	return src
}
