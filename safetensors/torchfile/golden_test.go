package torchfile_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/safetensors/torchfile"
)

// goldens is what scripts/make_torch_goldens.py has written beside the files.
type goldens struct {
	Read map[string]struct {
		Torch  bool // torch.load takes it with weights_only
		Order  []string
		Values map[string][2]string
	}
	Refused map[string]struct {
		Torch bool
		Error string
		Says  string
	}
}

func readGoldens(t testing.TB) (g goldens) {
	raw, err := os.ReadFile("testdata/goldens.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &g))
	return g
}

// Every file has the tensors that PyTorch saved, bit for bit and in its order.
func TestGoldenTensors(t *testing.T) {
	for name, golden := range readGoldens(t).Read {
		t.Run(name, func(t *testing.T) {
			got, err := torchfile.Open(goldenPath(name))
			require.NoError(t, err)
			defer got.Close()
			want, err := safetensors.Open(filepath.Join("testdata/read", name+".safetensors"))
			require.NoError(t, err)
			defer want.Close()
			require.Equal(t, golden.Order, append([]string{}, got.Names()...))
			require.Equal(t, want.Len(), got.Len())
			require.Equal(t, map[string]string{"format": "pt"}, got.Metadata())
			for _, tensor := range got.Names() {
				equalTensors(t, lookUp(t, want, tensor), lookUp(t, got, tensor))
			}
		})
	}
}

func goldenPath(name string) string { return filepath.Join("testdata/read", name+".pt") }

func lookUp(t testing.TB, f *safetensors.File, name string) *safetensors.View {
	t.Helper()
	v, err := f.Lookup(name)
	require.NoError(t, err)
	return v
}

func equalTensors(t *testing.T, want, got *safetensors.View) {
	t.Helper()
	require.Equal(t, want.DType, got.DType, got.Name)
	require.Equal(t, append([]int{}, want.Shape...), append([]int{}, got.Shape...), got.Name)
	require.NoError(t, got.WithBytes(func(data []byte) error {
		assert.Equal(t, want.Bytes(), data, got.Name)
		return nil
	}))
	// In pieces that end within elements.
	for size := 1; size < 12; size += 3 {
		var pieces []byte
		for at := 0; at < got.Len(); at += size {
			piece := make([]byte, min(size, got.Len()-at))
			_, err := got.ReadAt(piece, int64(at))
			require.NoError(t, err)
			pieces = append(pieces, piece...)
		}
		require.Equal(t, len(want.Bytes()), len(pieces))
		require.True(t, slices.Equal(want.Bytes(), pieces), "%s in pieces of %d", got.Name, size)
	}
}

func TestGoldenScalars(t *testing.T) {
	for name, golden := range readGoldens(t).Read {
		t.Run(name, func(t *testing.T) {
			scalars, err := torchfile.Scalars(goldenPath(name))
			require.NoError(t, err)
			got := map[string][2]string{}
			for key, v := range scalars {
				got[key] = describe(v)
			}
			require.Equal(t, golden.Values, got)
		})
	}
}

func describe(v any) [2]string {
	bits := func(f float64) string {
		return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, math.Float64bits(f)))
	}
	switch v := v.(type) {
	case nil:
		return [2]string{"none", ""}
	case bool:
		return [2]string{"bool", map[bool]string{true: "True", false: "False"}[v]}
	case int64:
		return [2]string{"int", fmt.Sprint(v)}
	case *big.Int:
		return [2]string{"int", v.String()}
	case float64:
		return [2]string{"float", bits(v)}
	case complex128:
		return [2]string{"complex", bits(real(v)) + bits(imag(v))}
	case string:
		return [2]string{"str", v}
	case []byte:
		return [2]string{"bytes", hex.EncodeToString(v)}
	}
	return [2]string{fmt.Sprintf("%T", v), ""}
}

func TestGoldenChecksums(t *testing.T) {
	for name := range readGoldens(t).Read {
		err := torchfile.Verify(goldenPath(name))
		if name == "zip_no_checksums" {
			require.ErrorIs(t, err, torchfile.ErrChecksum)
			continue
		}
		require.NoError(t, err, name)
	}
}

var rules = map[string]error{
	"ErrNotTorch": torchfile.ErrNotTorch, "ErrUnsupported": torchfile.ErrUnsupported, "ErrGlobal": torchfile.ErrGlobal, "ErrOpcode": torchfile.ErrOpcode,
	"ErrDType": torchfile.ErrDType, "ErrName": torchfile.ErrName, "ErrPickle": torchfile.ErrPickle, "ErrRecord": torchfile.ErrRecord, "ErrStorage": torchfile.ErrStorage,
}

func TestGoldenRefusals(t *testing.T) {
	for name, golden := range readGoldens(t).Refused {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata/refused", name)
			_, err := torchfile.Open(path)
			require.NotNil(t, rules[golden.Error], golden.Error)
			require.ErrorIs(t, err, rules[golden.Error])
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, golden.Says)
			var format *torchfile.FormatError
			require.True(t, errors.As(err, &format))
			require.Equal(t, path, format.Path)

			require.Error(t, torchfile.Verify(path))
		})
	}
}

// What lies in the file in order is not copied, and what shares a storage shares
// its bytes.
func TestInPlace(t *testing.T) {
	f, err := torchfile.Open(goldenPath("shared"))
	require.NoError(t, err)
	defer f.Close()
	raw, err := os.ReadFile(goldenPath("shared"))
	require.NoError(t, err)
	offset := func(name string) int64 {
		v := lookUp(t, f, name)
		path, offset, length := v.Extent()
		require.Equal(t, goldenPath("shared"), path)
		if offset >= 0 {
			require.Equal(t, raw[offset:offset+length], v.Bytes())
		}
		require.Equal(t, offset >= 0, v.InPlace())
		return offset
	}
	a := offset("a")
	require.Positive(t, a)
	require.Zero(t, a%64, "the alignment of torch.save")
	require.Equal(t, a+24, offset("b"))
	require.Equal(t, a, offset("c"))
	require.EqualValues(t, -1, offset("d"))
	require.Equal(t, a, offset("e.0"))
	require.Equal(t, a, offset("e.1"))

	for name, places := range map[string]int{"zip_deflated": 3, "legacy_views": 8, "views": 8, "big_endian": 3} {
		f, err := torchfile.Open(goldenPath(name))
		require.NoError(t, err)
		n := 0
		for _, tensor := range f.Names() {
			if lookUp(t, f, tensor).InPlace() {
				n++
			}
		}
		assert.Equal(t, places, n, name)
		require.NoError(t, f.Close())
	}
}
