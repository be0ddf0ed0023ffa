package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every file that is cut short anywhere, and every file that goes on, is
// refused, whichever way it is opened.
func TestEveryPrefixIsRefused(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.safetensors")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		for n := range len(whole) {
			_, err := FromBytes(whole[:n:n])
			var format *FormatError
			require.ErrorAs(t, err, &format, "%s: %d of %d bytes", path, n, len(whole))
			_, err = OpenReaderAt(bytes.NewReader(whole[:n]), int64(n), path)
			require.ErrorAs(t, err, &format, "%s: %d of %d bytes", path, n, len(whole))
		}
		for _, more := range []string{"\x00", " ", "PK\x05\x06" + strings.Repeat("\x00", 18)} {
			_, err := FromBytes(append(whole[:len(whole):len(whole)], more...))
			require.ErrorIs(t, err, ErrTrailing, path)
		}
	}
}

// talk is a file whose header has that many bytes of metadata and nothing else.
type talk struct{ header uint64 }

func (f talk) ReadAt(p []byte, off int64) (int, error) {
	for n := copy(p, "x"); n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
	begin := append(binary.LittleEndian.AppendUint64(nil, f.header), `{"__metadata__":{"a":"`...)
	if off < int64(len(begin)) {
		copy(p, begin[off:])
	}
	if end, last := `"}}`, lengthSize+int64(f.header); off+int64(len(p)) == last {
		copy(p[len(p)-len(end):], end)
	}
	return len(p), nil
}

func TestLongestHeader(t *testing.T) {
	const longest = 100_000_000
	f, err := OpenReaderAt(talk{longest}, 8+longest, "talk")
	require.NoError(t, err)
	assert.Zero(t, f.Len())
	assert.Len(t, f.Metadata()["a"], longest-len(`{"__metadata__":{"a":""}}`))
	_, err = OpenReaderAt(talk{longest + 1}, 8+longest+1, "talk")
	assert.ErrorIs(t, err, ErrHeaderTooLarge)
}

// A length that the file does not have costs no memory.
func TestHeaderLengthIsCheckedFirst(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, n := range []uint64{100_000_000, 67_324_752, 100_000_001, 1<<32 + 8, 1 << 63, math.MaxUint64 - 7, math.MaxUint64} {
		_, err := OpenReaderAt(talk{n}, 4096, "talk")
		require.Error(t, err)
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func TestVerdictsOnNumbers(t *testing.T) {
	for _, field := range []string{"shape", "offset"} {
		for number, whole := range map[string]bool{
			"8": true, " 8": true, "8 ": true, "\t8\r\n": true,
			"-8": false, "+8": false, "-0": false, "08": false, "00": false, "0x8": false, "8.0": false, "8e0": false, "8E0": false, ".8": false, "8.": false,
			`"8"`: false, "null": false, "true": false, "[8]": false, "{}": false, "NaN": false, "Infinity": false, "８": false,
			"18446744073709551616": false, "99999999999999999999999999": false,
		} {
			header := fmt.Sprintf(`{"a":{"dtype":"U8","shape":[%s],"data_offsets":[0,8]}}`, number)
			rule := ErrShape
			if field == "offset" {
				header = fmt.Sprintf(`{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,%s]}}`, number)
				rule = ErrOffsets
			}
			f, err := FromBytes(file(header, 8))
			if !whole {
				assert.ErrorIs(t, err, rule, header)
				continue
			}
			require.NoError(t, err, header)
			assert.Equal(t, []int{8}, lookup(t, f, "a").Shape)
		}
	}
}

// Fields that nobody reads are still checked as the reference checks them.
func TestVerdictsOnUnknownNumbers(t *testing.T) {
	for number, whole := range map[string]bool{
		"1e308": true, "1e309": false, "-1e309": false, "1e-999": true, "0e999": true, "17976931348623157e292": true, "17976931348623157e293": false,
		strings.Repeat("9", 308): true, strings.Repeat("9", 310): false, "123456789012345678901234567890": true, "-0": true, "0.5E+3": true,
	} {
		_, err := FromBytes(file(oneTensor(`{"x":`+number+`,`+twoF32+`}`), 8))
		if whole {
			assert.NoError(t, err, number)
		} else {
			assert.ErrorIs(t, err, ErrSyntax, number)
		}
	}
}

// Sizes are multiplied from the left: an overflow counts even where a zero
// follows. What an int cannot hold is refused before one, too, unlike in the
// reference, because a Shape could not say it.
func TestVerdictsOnLargeShapes(t *testing.T) {
	for shape, want := range map[string]error{
		"[9223372036854775808,9223372036854775808,0]": ErrOverflow,
		"[0,9223372036854775808,9223372036854775808]": ErrOverflow,
		"[0,9223372036854775808]":                     ErrOverflow,
		"[9223372036854775808]":                       ErrOverflow,
		"[18446744073709551615]":                      ErrOverflow,
		"[2305843009213693952]":                       ErrOverflow, // 2^61 bytes are 2^64 bits
		"[2305843009213693951]":                       ErrSize,
		"[0,2305843009213693952,8]":                   nil,
		"[4294967296,4294967296,0]":                   ErrOverflow,
		"[4294967296,0,4294967296]":                   nil,
	} {
		if math.MaxInt == math.MaxInt32 {
			want = ErrOverflow
		}
		_, err := FromBytes(file(`{"a":{"dtype":"U8","shape":`+shape+`,"data_offsets":[0,0]}}`, 0))
		if want == nil {
			assert.NoError(t, err, shape)
		} else {
			assert.ErrorIs(t, err, want, shape)
		}
	}
}

// What is accepted although it looks odd is also read right.
func TestOddFilesAreReadRight(t *testing.T) {
	f, err := FromBytes(file("\r\n\t "+`{"a\u0000b":{"dtype":"F32","DTYPE":"F64","Dtype":"U8","Shape":[9],"shape":[2],"SHAPE":[1],"data_offsets":[0,8],"DATA_OFFSETS":[0,1],"x":{"dtype":"U8"}},`+
		`"a":{"dtype":"U8","shape":[1],"data_offsets":[8,9]},"\ud83d\ude42\/":{"dtype":"I64","shape":[3,0],"data_offsets":[9,9]},"é":{"dtype":"F4","shape":[2,3],"data_offsets":[9,12]}}`+"\t\r\n ", 12))
	require.NoError(t, err)
	assert.Equal(t, []string{"a\x00b", "a", "🙂/", "é"}, f.Names())
	v := lookup(t, f, "a\x00b")
	assert.Equal(t, F32, v.DType)
	assert.Equal(t, []int{2}, v.Shape)
	assert.Equal(t, 8, v.Len())
	assert.Equal(t, []int{3, 0}, lookup(t, f, "🙂/").Shape)
	assert.Equal(t, 3, lookup(t, f, "é").Len())
	assert.False(t, f.Has("a\x00"))

	deep := oneTensor(`{` + twoF32 + `,"x":` + strings.Repeat(`{"dtype":[`, 62) + strings.Repeat(`]}`, 62) + `}`)
	f, err = FromBytes(file(deep, 8))
	require.NoError(t, err)
	assert.Equal(t, F32, lookup(t, f, "a").DType)
}

// A dangling link, a folder and what cannot be sought are errors, and nothing
// waits for them.
func TestOpenWhatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(dir, "link.safetensors")); err == nil {
		_, err = Open(filepath.Join(dir, "link.safetensors"))
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
	broken := io.NewSectionReader(failingReader{}, 0, 1000)
	_, err := OpenReaderAt(broken, 1000, "broken")
	assert.ErrorIs(t, err, io.ErrClosedPipe)
	assert.EqualError(t, err, "safetensors: broken: io: read/write on closed pipe")
}

// Errors of the system are passed on with what was tried.
func TestLoadPassesErrorsOn(t *testing.T) {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "x"), os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(100))
	info, err := f.Stat()
	require.NoError(t, err)
	_, err = load(f, info)
	var path *os.PathError
	require.ErrorAs(t, err, &path)
	assert.Equal(t, "read", path.Op)
	_, err = mapRegion(f, 100)
	assert.Error(t, err)
	_, err = OpenModel(strings.Repeat("x", 5000))
	assert.Error(t, err)
	if runtime.GOOS != "windows" {
		assert.NotErrorIs(t, err, os.ErrNotExist, "a name that is too long")
	}
	assert.Empty(t, (&NotFoundError{}).Nearest())
}

type failingReader struct{}

func (failingReader) ReadAt([]byte, int64) (int, error) { return 0, io.ErrClosedPipe }
