package linear

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/safetensors"
)

// TestPython: we read what Python has written, and write the same bytes.
func TestPython(t *testing.T) {
	for _, c := range []struct {
		file string
		want LinearRegression
		same bool // bytes, when written again
	}{
		{"f64", LinearRegression{Coefficients: []float64{0.1, -2.5, 1e-310}, Intercept: 1.0 / 3}, true},
		{"origin", LinearRegression{Coefficients: []float64{0.1, -2.5, 1e-310}, NoIntercept: true}, true},
		{"f32", LinearRegression{Coefficients: []float64{float64(float32(0.1)), -2.5, 0}, Intercept: float64(float32(1.0 / 3))}, false},
		{"plain", LinearRegression{Coefficients: []float64{2, 3}, Intercept: 1}, false},
	} {
		t.Run(c.file, func(t *testing.T) {
			path := filepath.Join("testdata", c.file+".safetensors")
			m, err := LoadSafetensors(path)
			require.NoError(t, err)
			require.Equal(t, c.want, *m)
			again := filepath.Join(t.TempDir(), "again.safetensors")
			require.NoError(t, m.SaveSafetensors(again))
			if c.same {
				require.Equal(t, readFile(t, path), readFile(t, again))
			}
			back, err := LoadSafetensors(again)
			require.NoError(t, err)
			require.Equal(t, m, back)
		})
	}
}

func readFile(t testing.TB, path string) []byte {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return raw
}

// TestRoundTrip keeps every bit: subnormals, negative zero, NaN with a payload.
func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SliceOfN(rapid.OneOf(
			rapid.Uint64(),
			rapid.Uint64Range(0, 1<<52), // subnormal
			rapid.SampledFrom([]uint64{1 << 63, 0x7ff0000000000000, 0x7ff8000000001234, 0x7ff0000000000001}),
		), 2, 12).Draw(t, "bits")
		m := LinearRegression{NoIntercept: rapid.Bool().Draw(t, "no intercept"), Intercept: math.Float64frombits(bits[0])}
		for _, b := range bits[1:] {
			m.Coefficients = append(m.Coefficients, math.Float64frombits(b))
		}
		require.NoError(t, m.SaveSafetensors(path))
		back, err := LoadSafetensors(path)
		require.NoError(t, err)
		require.Equal(t, m.NoIntercept, back.NoIntercept)
		got := []uint64{math.Float64bits(back.Intercept)}
		for _, c := range back.Coefficients {
			got = append(got, math.Float64bits(c))
		}
		require.Equal(t, bits, got)
	})
}

func TestSaveErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	require.ErrorIs(t, new(LinearRegression).SaveSafetensors(path), ErrUnfitted)
	require.NoFileExists(t, path)
	m := LinearRegression{Coefficients: []float64{1}}
	require.ErrorContains(t, m.SaveSafetensors(filepath.Join(path, "no such folder", "x")), "linear: ")
}

func TestLoadErrors(t *testing.T) {
	f64 := func(name string, shape ...int) safetensors.Entry {
		n := 1
		for _, d := range shape {
			n *= d
		}
		data := make([]byte, 8*n)
		for i := range n {
			binary.LittleEndian.PutUint64(data[8*i:], math.Float64bits(1))
		}
		return safetensors.Entry{Name: name, DType: safetensors.F64, Shape: shape, Data: data}
	}
	as := func(e safetensors.Entry, d safetensors.DType) safetensors.Entry {
		e.DType = d
		return e
	}
	for _, c := range []struct {
		name     string
		entries  []safetensors.Entry
		metadata map[string]string
		kind     error
		says     string
	}{
		{"no coefficients", []safetensors.Entry{f64("intercept", 1), f64("coefficient", 1)}, nil, safetensors.ErrNotFound, `"coefficients": no such tensor; nearest: "coefficient"`},
		{"no intercept", []safetensors.Entry{f64("coefficients", 1)}, nil, safetensors.ErrNotFound, `"intercept"`},
		{"table of coefficients", []safetensors.Entry{f64("coefficients", 2, 3), f64("intercept", 1)}, nil, ErrShape, "found shape [2 3], expected one dimension"},
		{"nothing fitted", []safetensors.Entry{f64("coefficients", 0), f64("intercept", 1)}, nil, ErrShape, "found shape [0], expected at least one value"},
		{"scalar intercept", []safetensors.Entry{f64("coefficients", 2), f64("intercept")}, nil, ErrShape, "found shape [], expected one dimension"},
		{"two intercepts", []safetensors.Entry{f64("coefficients", 2), f64("intercept", 2)}, nil, ErrShape, "found 2 values, expected 1"},
		{"whole numbers", []safetensors.Entry{as(f64("coefficients", 2), safetensors.I64), f64("intercept", 1)}, nil, ErrFile, "found I64, expected F64 or F32"},
		{"metadata", []safetensors.Entry{f64("coefficients", 2), f64("intercept", 1)}, map[string]string{"fit_intercept": "True"}, ErrFile, `found "True", expected "true" or "false"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.safetensors")
			require.NoError(t, safetensors.WriteFile(path, c.entries, c.metadata))
			_, err := LoadSafetensors(path)
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := LoadSafetensors(filepath.Join(t.TempDir(), "none.safetensors"))
	require.ErrorIs(t, err, os.ErrNotExist)
	short := filepath.Join(t.TempDir(), "short.safetensors")
	require.NoError(t, os.WriteFile(short, []byte{1, 2, 3}, 0o666))
	_, err = LoadSafetensors(short)
	require.ErrorIs(t, err, safetensors.ErrHeaderTooSmall)
}
