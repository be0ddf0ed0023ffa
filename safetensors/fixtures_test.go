package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every file that Python has written comes out the same, byte for byte, when its
// tensors and metadata are written again.
func TestRewriteFixtures(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.safetensors")
	require.NoError(t, err)
	require.Len(t, paths, 20)
	paths = append(paths, "../testdata/lm/qwen2/model-sharded/model-00003-of-00005.safetensors")
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			f, err := Open(path)
			require.NoError(t, err)
			defer f.Close()

			var entries []Entry
			for _, name := range f.Names() {
				v, err := f.Lookup(name)
				require.NoError(t, err)
				entries = append([]Entry{v.Entry()}, entries...) // backwards: the writer sorts
			}
			var got bytes.Buffer
			require.NoError(t, Write(&got, entries, f.Metadata()))
			assert.True(t, bytes.Equal(want, got.Bytes()), "want %q\ngot  %q", clip(want), clip(got.Bytes()))
		})
	}
}

func clip(b []byte) []byte { return b[:min(len(b), 400)] }

func TestEveryDTypeHasItsValues(t *testing.T) {
	f, err := Open("testdata/every_dtype.safetensors")
	require.NoError(t, err)
	defer f.Close()
	text, err := os.ReadFile("testdata/every_dtype.json")
	require.NoError(t, err)
	var want map[string]struct {
		DType  string
		Shape  []int
		Values []string
	}
	require.NoError(t, json.Unmarshal(text, &want))
	require.Equal(t, len(want), f.Len())
	assert.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
	for name, w := range want {
		v, err := f.Lookup(name)
		require.NoError(t, err)
		assert.Equal(t, w.Shape, append([]int{}, v.Shape...), name)
		width := v.DType.Bits() / 8
		require.Equal(t, len(w.Values)*width, v.Len(), name)
		for i, value := range w.Values {
			got, ok := number(v.DType, v.Bytes()[i*width:])
			if !ok {
				continue // the small floats are the business of another package
			}
			x, err := strconv.ParseFloat(value, 64)
			require.NoError(t, err)
			assert.Equal(t, x, got, "%s[%d]", name, i)
		}
	}
}

func number(d DType, b []byte) (float64, bool) {
	le := binary.LittleEndian
	switch d {
	case Bool, U8:
		return float64(b[0]), true
	case I8:
		return float64(int8(b[0])), true
	case U16:
		return float64(le.Uint16(b)), true
	case I16:
		return float64(int16(le.Uint16(b))), true
	case BF16:
		return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16)), true
	case U32:
		return float64(le.Uint32(b)), true
	case I32:
		return float64(int32(le.Uint32(b))), true
	case F32:
		return float64(math.Float32frombits(le.Uint32(b))), true
	case U64:
		return float64(le.Uint64(b)), true
	case I64:
		return float64(int64(le.Uint64(b))), true
	case F64:
		return math.Float64frombits(le.Uint64(b)), true
	}
	return 0, false
}

func TestNamesFixture(t *testing.T) {
	f, err := Open("testdata/names.safetensors")
	require.NoError(t, err)
	defer f.Close()
	assert.Equal(t, []string{"a.b", "", "日本語/ключ \"quoted\" \\ \n"}, f.Names())
	assert.Len(t, f.Metadata(), 1)
	assert.Contains(t, f.Metadata()["note"], ` "x" \ /<>&`)
}

func TestBadFixtures(t *testing.T) {
	want := map[string]error{
		"bad_dtype": ErrDType, "duplicate": ErrDuplicateTensor, "header_past_end": ErrHeaderPastEnd, "header_too_long": ErrHeaderTooLarge,
		"hole": ErrHole, "metadata_number": ErrMetadata, "negative": ErrShape, "not_json": ErrSyntax, "overflow": ErrOverflow,
		"overlap": ErrOverlap, "short": ErrHeaderTooSmall, "trailing": ErrTrailing, "truncated": ErrTruncated, "wrong_size": ErrSize,
		"zero_bytes": ErrHeaderTooSmall,
	}
	paths, err := filepath.Glob("testdata/bad/*.safetensors")
	require.NoError(t, err)
	require.Len(t, paths, len(want))
	for _, path := range paths {
		_, err := Open(path)
		assert.ErrorIs(t, err, want[strings.TrimSuffix(filepath.Base(path), ".safetensors")], path)
		assert.ErrorContains(t, err, path)
	}
}

// The order of the 20 types that Python writes, and of the two others, is that
// of the reference.
func TestDTypeOrder(t *testing.T) {
	f, err := Open("testdata/twenty_dtypes.safetensors")
	require.NoError(t, err)
	defer f.Close()
	last := U64
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		require.NoError(t, err)
		assert.LessOrEqual(t, v.DType, last)
		last = v.DType
	}
	assert.Equal(t, []DType{F4, F6E2M3, F6E3M2, U8}, []DType{Bool + 1, Bool + 2, Bool + 3, Bool + 4})
	n := 0
	for d := range DType(255) {
		if d.Bits() == 0 {
			continue
		}
		n++
		got, err := ParseDType(d.String())
		require.NoError(t, err)
		assert.Equal(t, d, got)
	}
	assert.Equal(t, 22, n)
	_, err = ParseDType("INVALID")
	assert.ErrorIs(t, err, ErrDType)
	assert.Equal(t, "DType(200)", DType(200).String())
}
