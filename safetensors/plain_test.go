package safetensors

import (
	"bytes"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// long makes the general way read each description of a tensor.
func long(header string) string { return strings.ReplaceAll(header, `{"dtype"`, `  {"dtype"`) }

// python puts spaces where Python's json does.
func python(header string) string { return strings.NewReplacer(":", ": ", ",", ", ").Replace(header) }

// Both ways to read a description come to the same verdict and to the same
// tensors, whatever one changes in it.
func TestPlainAgrees(t *testing.T) {
	const last = `"last":{"dtype":"U8","shape":[4,0],"data_offsets":[` // keeps the others away from the end of the text
	pieces := []string{"F32", "BF16", "F4", "I65", `\u0046`, "[", "]", ",", "0", "1", "8", "16", "18446744073709551616", "4294967296", " ", "{", "}", ":", `"`,
		`"shape"`, `"dtype"`, `"data_offsets"`, "-", ".", "e"}
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		var entries []Entry
		var size uint64
		for i := range rapid.IntRange(1, 3).Draw(t, "tensors") {
			shape := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 2, 24, 1000, 123456}), 0, 3).Draw(t, "shape")
			e := Entry{Name: strconv.Itoa(i), DType: rapid.SampledFrom([]DType{F32, BF16, F4, U64, F6E2M3, Bool}).Draw(t, "dtype"), Shape: shape}
			n, err := e.Size()
			if err != nil {
				t.Skip(err)
			}
			e.Write, size = untouchable, size+uint64(n)
			entries = append(entries, e)
		}
		l, err := newLayout(entries, nil)
		require.NoError(t, err)
		end := strconv.FormatUint(size, 10)
		text := strings.TrimRight(string(l.header[lengthSize:]), " }") + "}," + last + end + "," + end + "]}}"
		if rapid.Bool().Draw(t, "spaces") {
			text = python(text)
		}
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			at := rapid.IntRange(0, len(text)).Draw(t, "at")
			to := min(len(text), at+rapid.IntRange(0, 3).Draw(t, "removed"))
			text = text[:at] + rapid.SampledFrom(append(pieces, "")).Draw(t, "piece") + text[to:]
		}
		short, shortErr := parseHeader([]byte(text), size)
		general, generalErr := parseHeader([]byte(long(text)), size)
		if shortErr != nil || generalErr != nil {
			require.Equal(t, verdict(generalErr), verdict(shortErr), text)
			return
		}
		accepted++
		require.Len(t, short.records, len(general.records))
		for i := range general.records {
			a, b := &short.records[i], &general.records[i]
			require.Equal(t, general.appendShape(nil, b), short.appendShape(nil, a), text)
			a.shapeAt, b.shapeAt = 0, 0
			require.Equal(t, *b, *a, text)
		}
	})
	assert.NotZero(t, accepted)
}

// untouchable stands for data that a test of the header does not write.
func untouchable(io.Writer) error { panic("written") }

// verdict is an error without its place in the text.
func verdict(err error) any {
	f, ok := err.(*FormatError)
	if !ok {
		return err
	}
	return []any{f.Rule, f.Tensor, f.Expected}
}

// What the reference and Python write is read the short way: else it would be
// slow, and no other test would notice.
func TestPlainIsTaken(t *testing.T) {
	entries := append(checkpoint(20), Entry{Name: "scalar", DType: F64, Data: make([]byte, 8)},
		Entry{Name: "a \"quoted\" name", DType: C64, Shape: []int{0, 123456789}, Data: []byte{}})
	l, err := newLayout(entries, nil)
	require.NoError(t, err)
	for _, text := range []string{string(l.header[lengthSize:]), python(string(l.header[lengthSize:]))} {
		s := &scanner{text: []byte(text)}
		taken := 0
		require.NoError(t, s.object(func(string) error {
			var r record
			if r.readPlain(s, BF16) {
				taken++
				return nil
			}
			return r.read(s)
		}))
		assert.Equal(t, len(entries), taken)
	}
}

func TestPlainNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(0, math.MaxUint64>>rapid.IntRange(0, 63).Draw(t, "shift")).Draw(t, "number")
		digits := strconv.FormatUint(n, 10)
		after := rapid.SampledFrom([]string{",", "]", "/", ":", "x", ".", "\x00", "\xff", "\x80,", "e5"}).Draw(t, "after")
		text := slices.Concat([]byte("["), []byte(digits+after), bytes.Repeat([]byte("9"), 16))
		got, end := plainNumber(text, 1)
		if len(digits) > 15 {
			require.Equal(t, -1, end)
			return
		}
		require.Equal(t, n, got)
		require.Equal(t, 1+len(digits), end)
	})
	for _, text := range []string{"", "1", "x1234567", "01,00000", "00,00000", "-1,00000"} {
		_, end := plainNumber([]byte(text), 0)
		assert.Equal(t, -1, end, text)
	}
}

// What is wrong with a description is found although it stands in the plain form,
// wherever the text ends.
func TestPlainVerdicts(t *testing.T) {
	padding := strings.Repeat(" ", 16)
	for info, want := range map[string]error{
		`{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`:                     nil,
		`{"dtype":"F4","shape":[3],"data_offsets":[0,1]}`:                      ErrPartialByte,
		`{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}`: ErrOverflow,
		`{"dtype":"F32","shape":[4294967296,2147483648],"data_offsets":[0,0]}`: ErrOverflow,
		`{"dtype":"F32","shape":[2],"data_offsets":[8,0]}`:                     ErrReversed,
		`{"dtype":"F32","shape":[2],"data_offsets":[0,7]}`:                     ErrSize,
		`{"dtype":"F33","shape":[2],"data_offsets":[0,8]}`:                     ErrDType,
		`{"dtype":"F32","shape":[02],"data_offsets":[0,8]}`:                    ErrShape,
		`{"dtype":"F32","shape":[2],"data_offsets":[0,8],"dtype":"F32"}`:       ErrDuplicateField,
	} {
		_, err := parseHeader([]byte(oneTensor(info)+padding), 8)
		assert.ErrorIs(t, err, want, info)
		for end := range len(info) {
			_, err := parseHeader(slices.Clip([]byte(`{"a":`+info[:end])), 8)
			assert.Error(t, err, info[:end])
		}
	}
}
