package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Header text around one tensor "a" of two F32.
func oneTensor(info string) string { return `{"a":` + info + `}` }

const twoF32 = `"dtype":"F32","shape":[2],"data_offsets":[0,8]`

// Every rule of the format, one broken at a time, and what is allowed although
// it looks odd.
func TestVerdicts(t *testing.T) {
	deep := func(levels int) string { // in all, counting the object and the tensor
		return oneTensor(`{` + twoF32 + `,"x":` + strings.Repeat("[", levels-2) + strings.Repeat("]", levels-2) + `}`)
	}
	tensors := func(places ...string) string {
		var members []string
		for i, place := range places {
			var begin, end int
			_, err := fmt.Sscanf(place, "%d-%d", &begin, &end)
			require.NoError(t, err)
			members = append(members, fmt.Sprintf(`"%c":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}`, 'a'+i, max(end-begin, 0), begin, end))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	sized := func(dtype, shape string, n int) string {
		return fmt.Sprintf(`{"a":{"dtype":"%s","shape":%s,"data_offsets":[0,%d]}}`, dtype, shape, n)
	}
	cases := []struct {
		name   string
		header string
		data   int
		want   error // nil: accepted
	}{
		// text
		{"plain", oneTensor("{" + twoF32 + "}"), 8, nil},
		{"empty header", "", 0, ErrSyntax},
		{"only spaces", "   ", 0, ErrSyntax},
		{"no tensors", "{}", 0, nil},
		{"not an object", "[]", 0, ErrSyntax},
		{"null", "null", 0, ErrSyntax},
		{"string", `"a"`, 0, ErrSyntax},
		{"leading white space", " \r\n\t{}", 0, nil},
		{"trailing spaces", "{}   ", 0, nil},
		{"trailing white space", "{}\r\n\t", 0, nil},
		{"trailing text", "{}x", 0, ErrSyntax},
		{"second object", "{}{}", 0, ErrSyntax},
		{"NUL padding", "{}\x00\x00", 0, ErrSyntax},
		{"BOM", "\xef\xbb\xbf{}", 0, ErrSyntax},
		{"comment", "{/**/}", 0, ErrSyntax},
		{"trailing comma", "{" + `"a":{` + twoF32 + "},}", 8, ErrSyntax},
		{"missing colon", `{"a"{}}`, 0, ErrSyntax},
		{"cut", `{"a":{"dtype":"F32"`, 0, ErrSyntax},
		{"cut string", `{"a`, 0, ErrSyntax},
		{"invalid UTF-8", "{\"\xff\":{" + twoF32 + "}}", 8, ErrUTF8},
		{"overlong UTF-8", "{\"\xc0\x80\":{" + twoF32 + "}}", 8, ErrUTF8},
		{"surrogate in UTF-8", "{\"\xed\xa0\x80\":{" + twoF32 + "}}", 8, ErrUTF8},
		{"cut UTF-8", "{\"\xe2\x82\":{" + twoF32 + "}}", 8, ErrUTF8},
		{"raw control character", "{\"a\nb\":{" + twoF32 + "}}", 8, ErrSyntax},
		{"lone surrogate", `{"\ud800":{` + twoF32 + "}}", 8, ErrSyntax},
		{"surrogates in the wrong order", `{"\udc00\ud800":{` + twoF32 + "}}", 8, ErrSyntax},
		{"escape that JSON does not know", `{"\x41":{` + twoF32 + "}}", 8, ErrSyntax},
		{"short escape", `{"\u00`, 8, ErrSyntax},
		{"deepest", deep(127), 8, nil},
		{"too deep", deep(128), 8, ErrDepth},
		{"far too deep", oneTensor(`{` + twoF32 + `,"x":` + strings.Repeat(`{"a":`, 100000)), 8, ErrDepth},

		// metadata
		{"metadata", `{"__metadata__":{"a":"b","":""}}`, 0, nil},
		{"metadata last", `{"a":{` + twoF32 + `},"__metadata__":{}}`, 8, nil},
		{"metadata null", `{"__metadata__":null}`, 0, ErrMetadata},
		{"metadata array", `{"__metadata__":["a"]}`, 0, ErrMetadata},
		{"metadata number", `{"__metadata__":{"a":1}}`, 0, ErrMetadata},
		{"metadata nested", `{"__metadata__":{"a":{"b":"c"}}}`, 0, ErrMetadata},
		{"metadata null value", `{"__metadata__":{"a":null}}`, 0, ErrMetadata},
		{"metadata key twice", `{"__metadata__":{"a":"b","a":"b"}}`, 0, ErrDuplicateMetadata},
		{"metadata key twice, escaped", `{"__metadata__":{"a":"b","\u0061":"b"}}`, 0, ErrDuplicateMetadata},
		{"metadata twice", `{"__metadata__":{},"__metadata__":{}}`, 0, ErrDuplicateMetadata},
		{"metadata twice, escaped", `{"__metadata__":{},"\u005f_metadata__":{}}`, 0, ErrDuplicateMetadata},

		// names
		{"empty name", `{"":{` + twoF32 + `}}`, 8, nil},
		{"name like a path", `{"../x":{` + twoF32 + `}}`, 8, nil},
		{"emoji", `{"🙂":{` + twoF32 + `}}`, 8, nil},
		{"escaped emoji", `{"\ud83d\ude42":{` + twoF32 + `}}`, 8, nil},
		{"100 kB", `{"` + strings.Repeat("x", 100_000) + `":{` + twoF32 + `}}`, 8, nil},
		{"NFC and NFD", "{\"\u00e9\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"e\u0301\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2, nil},
		{"NUL in a name", `{"a\u0000b":{` + twoF32 + `}}`, 8, nil},
		{"DEL in a name", "{\"a\x7f\":{" + twoF32 + "}}", 8, nil},
		{"tensor twice", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2, ErrDuplicateTensor},
		{"tensor twice, escaped", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2, ErrDuplicateTensor},
		{"tensor twice, same data", `{"a":{` + twoF32 + `},"a":{` + twoF32 + `}}`, 8, ErrDuplicateTensor},

		// fields
		{"positional", `{"a":["F32",[2],[0,8]]}`, 8, ErrTensorInfo},
		{"tensor null", `{"a":null}`, 0, ErrTensorInfo},
		{"tensor number", `{"a":1}`, 0, ErrTensorInfo},
		{"no dtype", `{"a":{"shape":[2],"data_offsets":[0,8]}}`, 8, ErrMissingField},
		{"no shape", `{"a":{"dtype":"F32","data_offsets":[0,8]}}`, 8, ErrMissingField},
		{"no offsets", `{"a":{"dtype":"F32","shape":[2]}}`, 8, ErrMissingField},
		{"nothing", `{"a":{}}`, 0, ErrMissingField},
		{"other case only", `{"a":{"Dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8, ErrMissingField},
		{"other case as well", `{"a":{` + twoF32 + `,"DTYPE":"U8","Shape":[9]}}`, 8, nil},
		{"unknown field", `{"a":{"x":[1,-0.5e+3,{"y":[true,false,null,"\n"]}],` + twoF32 + `}}`, 8, nil},
		{"unknown field with bad syntax", `{"a":{"x":[01],` + twoF32 + `}}`, 8, ErrSyntax},
		{"unknown field, bare word", `{"a":{"x":nul,` + twoF32 + `}}`, 8, ErrSyntax},
		{"unknown field, no digits", `{"a":{"x":-,` + twoF32 + `}}`, 8, ErrSyntax},
		{"unknown field, no fraction", `{"a":{"x":1.,` + twoF32 + `}}`, 8, ErrSyntax},
		{"unknown field, no exponent", `{"a":{"x":1e+,` + twoF32 + `}}`, 8, ErrSyntax},
		{"unknown field, bad string", `{"a":{"x":"\ud800",` + twoF32 + `}}`, 8, ErrSyntax},
		{"escaped field", `{"a":{"\u0064type":"F32","shape":[2],"data_offsets":[0,8]}}`, 8, nil},
		{"dtype twice", `{"a":{` + twoF32 + `,"dtype":"F32"}}`, 8, ErrDuplicateField},
		{"dtype twice, escaped", `{"a":{` + twoF32 + `,"\u0064type":"F32"}}`, 8, ErrDuplicateField},
		{"shape twice", `{"a":{` + twoF32 + `,"shape":[2]}}`, 8, ErrDuplicateField},
		{"offsets twice", `{"a":{` + twoF32 + `,"data_offsets":[0,8]}}`, 8, ErrDuplicateField},

		// dtype
		{"unknown dtype", sized("F31", "[2]", 8), 8, ErrDType},
		{"dtype in lower case", sized("f32", "[2]", 8), 8, ErrDType},
		{"name of the zero dtype", sized("INVALID", "[0]", 0), 0, ErrDType},
		{"dtype null", `{"a":{"dtype":null,"shape":[2],"data_offsets":[0,8]}}`, 8, ErrDType},
		{"dtype as an object", `{"a":{"dtype":{"F32":null},"shape":[2],"data_offsets":[0,8]}}`, 8, ErrDType},

		// shape
		{"scalar", sized("F32", "[]", 4), 4, nil},
		{"zero dimension", sized("F32", "[3,0,2]", 0), 0, nil},
		{"white space in shape", sized("F32", "[ 1 ,\n2 ]", 8), 8, nil},
		{"rank 5000", sized("U8", "["+strings.Repeat("1,", 4999)+"1]", 1), 1, nil},
		{"shape null", sized("F32", "null", 8), 8, ErrShape},
		{"shape a number", sized("F32", "2", 8), 8, ErrShape},
		{"negative", sized("F32", "[-2]", 8), 8, ErrShape},
		{"negative zero", sized("F32", "[-0]", 0), 0, ErrShape},
		{"float", sized("F32", "[2.0]", 8), 8, ErrShape},
		{"exponent", sized("F32", "[2e0]", 8), 8, ErrShape},
		{"leading zero", sized("F32", "[02]", 8), 8, ErrShape},
		{"two zeros", sized("F32", "[00]", 0), 0, ErrShape},
		{"dimension as a string", sized("F32", `["2"]`, 8), 8, ErrShape},
		{"dimension null", sized("F32", "[null]", 8), 8, ErrShape},
		{"dimension nested", sized("F32", "[[2]]", 8), 8, ErrShape},
		{"dimension of 2^64", sized("F32", "[18446744073709551616]", 8), 8, ErrShape},
		{"dimension of 30 digits", sized("F32", "[184467440737095516160000000000]", 8), 8, ErrShape},
		{"trailing comma in shape", sized("F32", "[2,]", 8), 8, ErrShape},
		{"shape not closed", `{"a":{"dtype":"F32","shape":[2`, 8, ErrShape},
		{"product wraps to the right size", sized("F32", "[4611686018427387905,4]", 16), 16, ErrOverflow},
		{"product wraps to zero", sized("F32", "[4294967296,4294967296]", 0), 0, ErrOverflow},
		{"bits overflow", sized("F64", "[2305843009213693952]", 0), 0, ErrOverflow},
		{"overflow before a zero", sized("U8", "[9223372036854775807,3,0]", 0), 0, ErrOverflow},
		{"zero before an overflow", sized("U8", "[0,9223372036854775807,3]", 0), 0, nil},
		{"half a byte", sized("F4", "[3]", 1), 1, ErrPartialByte},
		{"F4 scalar", sized("F4", "[]", 1), 1, ErrPartialByte},
		{"one F6", sized("F6_E2M3", "[1]", 1), 1, ErrPartialByte},
		{"24 bits of F4", sized("F4", "[2,3]", 3), 3, nil},
		{"24 bits of F6", sized("F6_E3M2", "[4]", 3), 3, nil},

		// offsets
		{"offsets null", `{"a":{"dtype":"F32","shape":[2],"data_offsets":null}}`, 8, ErrOffsets},
		{"no offset", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[]}}`, 8, ErrOffsets},
		{"one offset", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[8]}}`, 8, ErrOffsets},
		{"three offsets", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}`, 8, ErrOffsets},
		{"float offset", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8.0]}}`, 8, ErrOffsets},
		{"negative offset", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}}`, 8, ErrOffsets},
		{"offset of 2^64", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551616]}}`, 8, ErrOffsets},
		{"too few bytes, rank 5000", sized("U8", "["+strings.Repeat("1,", 4999)+"2]", 1), 1, ErrSize},
		{"long name, too few bytes", `{"` + strings.Repeat("x", 100_000) + `":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}`, 1, ErrSize},
		{"too few bytes", sized("F32", "[3]", 8), 8, ErrSize},
		{"too many bytes", sized("F32", "[1]", 8), 8, ErrSize},
		{"zero dimension with bytes", sized("F32", "[0]", 4), 4, ErrSize},
		{"scalar without bytes", sized("F32", "[]", 0), 0, ErrSize},
		{"reversed", tensors("0-4", "8-4"), 8, ErrReversed},

		// layout
		{"two", tensors("0-4", "4-8"), 8, nil},
		{"header in another order", tensors("4-8", "0-4"), 8, nil},
		{"empty tensors share a place", tensors("0-4", "4-4", "4-4", "4-8"), 8, nil},
		{"empty tensor first and last", tensors("0-0", "0-4", "4-4"), 4, nil},
		{"empty tensor after the one that begins where it does", tensors("0-4", "0-0"), 4, nil},
		{"does not begin at 0", tensors("1-4"), 4, ErrHole},
		{"hole", tensors("0-3", "4-8"), 8, ErrHole},
		{"overlap", tensors("0-4", "3-8"), 8, ErrOverlap},
		{"same place twice", tensors("0-4", "0-4"), 4, ErrOverlap},
		{"inside another", tensors("0-8", "2-4"), 8, ErrOverlap},
		{"empty inside another", tensors("0-8", "4-4"), 8, ErrOverlap},
		{"empty after the end", tensors("0-4", "8-8"), 8, ErrHole},
		{"beyond every file", tensors("0-4", "4-1000000000000"), 4, ErrTruncated},
		{"truncated", tensors("0-4"), 3, ErrTruncated},
		{"no data", tensors("0-4"), 0, ErrTruncated},
		{"trailing byte", tensors("0-4"), 5, ErrTrailing},
		{"data without tensors", "{}", 1, ErrTrailing},
		{"misaligned data", `{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}}`, 7, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, err := FromBytes(file(c.header, c.data))
			if c.want == nil {
				require.NoError(t, err)
				for _, name := range f.Names() {
					v, err := f.Lookup(name)
					require.NoError(t, err)
					assert.Equal(t, name, v.Name)
				}
				return
			}
			require.ErrorIs(t, err, c.want)
			var format *FormatError
			require.ErrorAs(t, err, &format)
			assert.NotEmpty(t, err.Error())
			assert.Less(t, len(err.Error()), 1000, "a message stays readable whatever the file holds")
		})
	}
}

func TestHeaderLength(t *testing.T) {
	for n := range 8 {
		_, err := FromBytes(make([]byte, n))
		assert.ErrorIs(t, err, ErrHeaderTooSmall)
	}
	for _, c := range []struct {
		n    uint64
		want error
	}{{maxHeader + 1, ErrHeaderTooLarge}, {1<<32 + 2, ErrHeaderTooLarge}, {1 << 63, ErrHeaderTooLarge}, {math.MaxUint64 - 7, ErrHeaderTooLarge},
		{maxHeader, ErrHeaderPastEnd}, {3, ErrHeaderPastEnd}, {2, nil}, {0x04034b50, ErrHeaderPastEnd}} {
		_, err := FromBytes(append(binary.LittleEndian.AppendUint64(nil, c.n), "{}"...))
		assert.ErrorIs(t, err, c.want, "%d", c.n)
	}
	path := filepath.Join(t.TempDir(), "zip")
	require.NoError(t, os.WriteFile(path, append([]byte("PK\x03\x04\x00\x00\x00\x00"), make([]byte, 100)...), 0o600))
	_, err := Open(path)
	assert.ErrorIs(t, err, ErrHeaderPastEnd, "a PyTorch zip is found out before memory is reserved for its header")
}

func TestErrorSaysWhereAndWhat(t *testing.T) {
	_, err := FromBytes(file(`{"x\"":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8))
	assert.EqualError(t, err, `safetensors: tensor "x\"": size of the data is not that of the shape: found 8 bytes, expected 12 bytes for F32[3]`)
	_, err = FromBytes(file(`{"":{"dtype":"F33"}}`, 8))
	assert.EqualError(t, err, `safetensors: tensor "": unknown dtype at byte 21: found "F33"`)
	_, err = FromBytes(file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3))
	assert.EqualError(t, err, `safetensors: tensor "b": unused bytes before the data: found data at [2, 3), expected a beginning at 1`)

	path := filepath.Join(t.TempDir(), "m.safetensors")
	require.NoError(t, os.WriteFile(path, file("{hello}", 0), 0o600))
	_, err = Open(path)
	assert.EqualError(t, err, "safetensors: "+path+`: not a valid JSON object at byte 9: found "hello}", expected a string`)
	var format *FormatError
	require.ErrorAs(t, err, &format)
	assert.Equal(t, path, format.Path)
	assert.Equal(t, int64(9), format.Offset)
}

// The prefix that eight bytes at a time find is the one that one at a time do.
func TestPlainPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.SampledFrom([]byte("\x00\x1f !\"#[\\]a\x7f\x80\xa0\xff"))).Draw(t, "text")
		start := rapid.IntRange(0, len(text)).Draw(t, "start")
		want := start
		for want < len(text) && text[want] >= ' ' && text[want] != '"' && text[want] != '\\' {
			want++
		}
		require.Equal(t, want, plainPrefix(text, start))
	})
	for n := range 20 { // each special byte at each place in a word
		for c := range 256 {
			text := bytes.Repeat([]byte("~"), 20)
			text[n] = byte(c)
			want := 20
			if c < ' ' || c == '"' || c == '\\' {
				want = n
			}
			require.Equal(t, want, plainPrefix(text, 0), "%d at %d", c, n)
		}
	}
}

// What is accepted is at least JSON, and says what encoding/json reads in it.
// Every prefix, and every file with one more byte, is refused.
func FuzzFromBytes(f *testing.F) {
	for _, pattern := range []string{"testdata/*.safetensors", "testdata/bad/*.safetensors"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(f, err)
		for _, path := range paths {
			data, err := os.ReadFile(path)
			require.NoError(f, err)
			f.Add(data)
		}
	}
	f.Add(file(`{"a":{"x":[1,-0.5e+3,{"y":[true,false,null,"\n"]}],`+twoF32+`}}`, 8))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := FromBytes(data)
		if err != nil {
			var format *FormatError
			require.True(t, errors.As(err, &format), "%v", err)
			return
		}
		text := data[lengthSize:file.start]
		var want map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &want))
		delete(want, metadataKey)
		require.Equal(t, len(want), file.Len())
		end := file.start
		for _, name := range file.Names() {
			v, err := file.Lookup(name)
			require.NoError(t, err)
			var info struct {
				DType   string   `json:"dtype"`
				Shape   []int    `json:"shape"`
				Offsets []uint64 `json:"data_offsets"`
			}
			_ = json.Unmarshal(want[name], &info)
			if !strings.Contains(strings.ToLower(string(want[name])), "\\u") && strings.Count(strings.ToLower(string(want[name])), "dtype") == 1 {
				require.Equal(t, info.DType, v.DType.String())
			}
			_, offset, length := v.Extent()
			require.Equal(t, end, offset, "tensors follow each other")
			end += length
		}
		require.Equal(t, int64(len(data)), end)
		_, err = FromBytes(append(data[:len(data):len(data)], 0))
		require.ErrorIs(t, err, ErrTrailing)
		_, err = FromBytes(data[:len(data)-1])
		require.Error(t, err)
	})
}
