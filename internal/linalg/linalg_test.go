package linalg

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func random(rows, cols int, seed uint64) Matrix {
	r := rand.New(rand.NewPCG(seed, 1))
	m := New(rows, cols)
	for i := range m.Data {
		m.Data[i] = r.NormFloat64()
	}
	return m
}

func requireClose(t require.TestingT, want, got Matrix, tolerance float64) {
	require.Equal(t, [2]int{want.Rows, want.Cols}, [2]int{got.Rows, got.Cols})
	require.InDeltaSlice(t, want.Data, got.Data, tolerance)
}

func identity(n int) Matrix {
	m := New(n, n)
	for i := range n {
		m.Data[i*n+i] = 1
	}
	return m
}

func scaleRows(s []float64, m Matrix) Matrix {
	out := New(m.Rows, m.Cols)
	for i := range m.Rows {
		for j, v := range m.Row(i) {
			out.Row(i)[j] = s[i] * v
		}
	}
	return out
}

func TestQR(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, cols := rapid.IntRange(1, 40).Draw(t, "rows"), rapid.IntRange(1, 40).Draw(t, "cols")
		a := random(rows, cols, rapid.Uint64().Draw(t, "seed"))
		q, r := QR(a)
		k := min(rows, cols)
		requireClose(t, a, Mul(q, r), 1e-12)
		requireClose(t, identity(k), MulT(q, q), 1e-12)
		for i := range k {
			for j := range i {
				require.Zero(t, r.Data[i*cols+j], "r is upper triangular")
			}
		}
	})
}

// The signs are a convention; this is torch.linalg.qr of the same matrix.
func TestQRSigns(t *testing.T) {
	_, r := QR(Matrix{3, 2, []float64{3, 1, 4, 1, 0, 2}})
	assert.InDeltaSlice(t, []float64{-5, -1.4, 0, 2.009975124224178}, r.Data, 1e-12)
}

func TestSVD(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, cols := rapid.IntRange(1, 30).Draw(t, "rows"), rapid.IntRange(1, 30).Draw(t, "cols")
		a := random(rows, cols, rapid.Uint64().Draw(t, "seed"))
		u, s, vt, err := SVD(a)
		require.NoError(t, err)
		requireClose(t, a, Mul(u, scaleRows(s, vt)), 1e-11)
		requireClose(t, identity(len(s)), MulT(u, u), 1e-12)
		for i := 1; i < len(s); i++ {
			require.GreaterOrEqual(t, s[i-1], s[i])
		}
	})
}

func TestRandomizedSVD(t *testing.T) {
	for _, shape := range [][2]int{{60, 35}, {35, 60}} {
		// Singular values 1, 1/2, 1/4, …: what a trained weight looks like.
		qu, _ := QR(random(shape[0], 30, 1))
		qv, _ := QR(random(shape[1], 30, 2))
		s := make([]float64, 30)
		for i := range s {
			s[i] = math.Pow(0.5, float64(i))
		}
		a := Mul(qu, scaleRows(s, qv.T()))
		r := rand.New(rand.NewPCG(3, 3))
		noise := make([]float64, 35*20)
		for i := range noise {
			noise[i] = r.NormFloat64()
		}
		u, got, vt, err := RandomizedSVD(a, 6, 4, func(i int) float64 { return noise[i] })
		require.NoError(t, err)
		assert.InDeltaSlice(t, s[:6], got, 1e-10)
		best := Mul(qu.columns(6), scaleRows(s[:6], Matrix{6, shape[1], qv.T().Data[:6*shape[1]]}))
		requireClose(t, best, Mul(u, scaleRows(got, vt)), 1e-10)
	}
}

// Sums must not depend on how many threads share them.
func TestIndependentOfThreads(t *testing.T) {
	a := random(300, 200, 5)
	run := func(threads int) Matrix {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
		u, _, _, err := RandomizedSVD(a, 8, 2, func(i int) float64 { return math.Sin(float64(i * i)) })
		require.NoError(t, err)
		return u
	}
	assert.Equal(t, run(1), run(2))
	assert.Equal(t, run(1), run(7))
}

func TestFromFloat32(t *testing.T) {
	_, err := FromFloat32([]float32{1, 2, float32(math.NaN()), 3}, 2, 2)
	require.ErrorIs(t, err, ErrNotFinite)
	assert.ErrorContains(t, err, "row 1, column 0")
	_, err = FromFloat32([]float32{1}, 2, 2)
	assert.ErrorContains(t, err, "expected 4 elements, found 1")
}
