package inspect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
)

// saved writes a file and gives its path.
func saved(t testing.TB, dir, name string, entries ...safetensors.Entry) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, safetensors.WriteFile(path, entries, nil))
	return path
}

// checked checks what is at path.
func checked(t testing.TB, path string) *Report {
	t.Helper()
	s, err := weights.Open(path)
	require.NoError(t, err)
	defer s.Close()
	last := int64(0)
	r, err := Check(t.Context(), s, Options{Progress: func(done, total int64) {
		assert.GreaterOrEqual(t, done, last)
		assert.LessOrEqual(t, done, total)
		last = done
	}})
	require.NoError(t, err)
	return r
}

func named(name string, d safetensors.DType, data []byte, shape ...int) safetensors.Entry {
	return safetensors.Entry{Name: name, DType: d, Shape: shape, Data: data}
}

func TestCheckTensors(t *testing.T) {
	nan := []byte{0, 0, 0xc0, 0x7f}
	path := saved(t, t.TempDir(), "x.safetensors",
		named("a", safetensors.F32, le[float32](1, 2), 2), named("b", safetensors.F32, le[float32](1, 2), 2), named("other shape", safetensors.F32, le[float32](1, 2), 1, 2),
		named("mask", safetensors.Bool, []byte{0, 1, 2, 255}, 4), named("nan", safetensors.F32, append(nan, nan...), 2), named("zeros", safetensors.I8, make([]byte, 3), 3),
		named("ones", safetensors.F32, le[float32](1, 1), 2), named("more ones", safetensors.F32, le[float32](1, 1), 2), named("empty", safetensors.F32, nil, 0))
	r := checked(t, path)
	assert.Equal(t, []string{`tensor "mask": 2 values of BOOL are neither 0 nor 1`}, r.Problems)
	assert.Equal(t, []string{
		`tensor "nan": 2 of 2 values are NaN, 0 are infinite`, `tensor "zeros": all 3 values are 0`, `tensor "b" is a copy of "a"`,
	}, r.Warnings)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	sum := sha256.Sum256(raw)
	assert.Equal(t, []Digest{{Name: "x.safetensors", Bytes: int64(len(raw)), SHA256: hex.EncodeToString(sum[:])}}, r.Files)
	s, err := weights.Open(path)
	require.NoError(t, err)
	defer s.Close()
	for i, name := range s.Names() {
		v, err := s.Lookup(name)
		require.NoError(t, err)
		assert.Equal(t, crc32.Checksum(v.Bytes(), castagnoli), r.Values[i].CRC32C, name)
	}
}

func TestCheckShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage")
	require.NoError(t, os.WriteFile(path, le[float32](1, 2, 3, 4), 0o666))
	f, err := safetensors.OpenExternal(path, []safetensors.ExternalTensor{
		{Name: "a", DType: safetensors.F32, Shape: []int{4}}, {Name: "b", DType: safetensors.F32, Shape: []int{4}},
	}, nil)
	require.NoError(t, err)
	s := weights.New(f)
	defer s.Close()
	r, err := Check(t.Context(), s, Options{})
	require.NoError(t, err)
	assert.Empty(t, r.Problems)
	assert.Equal(t, []string{`tensor "b" shares the bytes of "a"`}, r.Warnings)
}

// TestCheckIndex: shards and index do not agree.
func TestCheckIndex(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir, "m-1.safetensors", named("a", safetensors.U8, []byte{1}, 1), named("b", safetensors.U8, []byte{2}, 1))
	index := filepath.Join(dir, "model.safetensors.index.json")
	require.NoError(t, os.WriteFile(index, []byte(`{"metadata": {"total_size": 2}, "weight_map": {"a": "m-1.safetensors", "b": "m-1.safetensors"}}`), 0o666))
	r := checked(t, dir)
	assert.Empty(t, r.Problems)
	assert.Equal(t, []string{"m-1.safetensors", "model.safetensors.index.json"}, []string{r.Files[0].Name, r.Files[1].Name})
	require.NoError(t, os.WriteFile(index, []byte(`{"metadata": {"total_size": 3}, "weight_map": {"a": "m-1.safetensors", "c": "m-1.safetensors"}}`), 0o666))
	assert.Len(t, checked(t, dir).Problems, 3)
}

// TestCheckDigests compares with what stands beside a file, and with the name
// that it has in the Hugging Face cache.
func TestCheckDigests(t *testing.T) {
	dir := t.TempDir()
	path := saved(t, dir, "x.safetensors", named("a", safetensors.U8, []byte{1}, 1))
	sum := checked(t, path).Files[0].SHA256
	for content, problem := range map[string]string{
		sum + "  x.safetensors\n": "", strings.ToUpper(sum): "", "": "holds no SHA-256", "abc": "holds no SHA-256",
		strings.Repeat("0", 64) + " *x.safetensors": "has the SHA-256 " + sum + ", expected " + strings.Repeat("0", 64) + " by x.safetensors.sha256",
	} {
		require.NoError(t, os.WriteFile(path+".sha256", []byte(content), 0o666))
		r := checked(t, path)
		assert.Equal(t, "x.safetensors.sha256", r.Files[0].Expected)
		assert.Equal(t, problem != "", len(r.Problems) == 1, content)
		assert.Contains(t, strings.Join(r.Problems, ""), problem)
	}
	require.NoError(t, os.Remove(path+".sha256"))
	blobs := filepath.Join(dir, "blobs")
	require.NoError(t, os.Mkdir(blobs, 0o777))
	for name, problems := range map[string]int{sum: 0, strings.Repeat("1", 64): 1} {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(blobs, name), raw, 0o666))
		link := filepath.Join(dir, "link.safetensors")
		if err := os.Symlink(filepath.Join("blobs", name), link); err != nil {
			t.Skip(err)
		}
		r := checked(t, link)
		assert.Equal(t, "the Hugging Face cache", r.Files[0].Expected)
		assert.Len(t, r.Problems, problems)
		require.NoError(t, os.Remove(link))
	}
}

// TestCheckUnreadable: bytes that cannot be read are a problem of their tensor.
func TestCheckUnreadable(t *testing.T) {
	path := saved(t, t.TempDir(), "x.safetensors", named("a", safetensors.U8, make([]byte, 1<<20), 1<<20), named("b", safetensors.F64, le(1.5), 1))
	s, err := weights.Open(path)
	require.NoError(t, err)
	defer s.Close()
	if err := os.Truncate(path, 1<<19); err != nil {
		t.Skip(err) // mapped files cannot be cut short on Windows
	}
	r, err := Check(t.Context(), s, Options{})
	require.NoError(t, err)
	require.Len(t, r.Problems, 1)
	assert.Contains(t, r.Problems[0], `tensor "a"`)
	assert.Contains(t, r.Problems[0], safetensors.ErrFault.Error())
	assert.EqualValues(t, "1.5", r.Values[0].Min)
	require.NoError(t, os.Remove(path))
	_, err = Check(t.Context(), s, Options{})
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestCheckStops(t *testing.T) {
	path := saved(t, t.TempDir(), "x.safetensors", named("a", safetensors.U8, []byte{1}, 1))
	s, err := weights.Open(path)
	require.NoError(t, err)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Check(ctx, s, Options{})
	assert.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.Close())
	_, err = Check(t.Context(), s, Options{})
	assert.ErrorIs(t, err, safetensors.ErrClosed)
}
