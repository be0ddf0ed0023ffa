// Package linalg computes QR and singular value decompositions in float64,
// which some adapters are initialized with.
package linalg

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"
)

// ErrNotFinite reports a matrix that contains NaN or infinity.
var ErrNotFinite = errors.New("the matrix is not finite")

// ErrNoConvergence reports an iteration that did not converge.
var ErrNoConvergence = errors.New("the singular value decomposition did not converge")

// Matrix is a dense matrix in row-major order.
type Matrix struct {
	Rows, Cols int
	Data       []float64 // Rows·Cols elements
}

// New returns a matrix of zeros.
func New(rows, cols int) Matrix {
	return Matrix{rows, cols, make([]float64, rows*cols)}
}

// FromFloat32 returns a matrix with the values of src, which must have
// rows·cols elements. It fails with ErrNotFinite if one is NaN or infinite.
func FromFloat32(src []float32, rows, cols int) (Matrix, error) {
	if len(src) != rows*cols {
		return Matrix{}, fmt.Errorf("linalg: %d×%d matrix: expected %d elements, found %d", rows, cols, rows*cols, len(src))
	}
	m := New(rows, cols)
	for i, v := range src {
		f := float64(v)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return Matrix{}, fmt.Errorf("linalg: row %d, column %d: %w", i/cols, i%cols, ErrNotFinite)
		}
		m.Data[i] = f
	}
	return m, nil
}

// Row returns a view of row i.
func (m Matrix) Row(i int) []float64 { return m.Data[i*m.Cols : (i+1)*m.Cols] }

// T returns a copy of the transpose.
func (m Matrix) T() Matrix {
	t := New(m.Cols, m.Rows)
	for i := range m.Rows {
		for j, v := range m.Row(i) {
			t.Data[j*t.Cols+i] = v
		}
	}
	return t
}

// Mul returns a·b.
func Mul(a, b Matrix) Matrix {
	c := New(a.Rows, b.Cols)
	blas64.Gemm(blas.NoTrans, blas.NoTrans, 1, a.general(), b.general(), 0, c.general())
	return c
}

// MulT returns aᵀ·b.
func MulT(a, b Matrix) Matrix {
	c := New(a.Cols, b.Cols)
	blas64.Gemm(blas.Trans, blas.NoTrans, 1, a.general(), b.general(), 0, c.general())
	return c
}

func (m Matrix) general() blas64.General {
	return blas64.General{Rows: m.Rows, Cols: m.Cols, Stride: max(m.Cols, 1), Data: m.Data}
}

// QR factors a = q·r, where q has k = min(Rows, Cols) orthonormal columns and r
// is upper triangular with k rows. The signs follow from LAPACK's Householder
// reflections (geqrf) and agree with torch.linalg.qr.
func QR(a Matrix) (q, r Matrix) {
	k := min(a.Rows, a.Cols)
	f := Matrix{a.Rows, a.Cols, append([]float64(nil), a.Data...)}
	tau := make([]float64, k)
	work := make([]float64, 1)
	lapack64.Geqrf(f.general(), tau, work, -1)
	work = make([]float64, int(work[0]))
	lapack64.Geqrf(f.general(), tau, work, len(work))

	q, r = New(a.Rows, k), New(k, a.Cols)
	for i := range k {
		copy(r.Row(i)[i:], f.Row(i)[i:])
	}
	for i := range a.Rows {
		copy(q.Row(i), f.Row(i)[:k])
	}
	work = work[:1]
	lapack64.Orgqr(q.general(), tau, work, -1)
	work = make([]float64, int(work[0]))
	lapack64.Orgqr(q.general(), tau, work, len(work))
	return q, r
}

// SVD factors a = u·diag(s)·vt with k = min(Rows, Cols) singular values, the
// largest first. It fails with ErrNoConvergence.
func SVD(a Matrix) (u Matrix, s []float64, vt Matrix, err error) {
	var f mat.SVD
	if !f.Factorize(mat.NewDense(a.Rows, a.Cols, append([]float64(nil), a.Data...)), mat.SVDThin) {
		return Matrix{}, nil, Matrix{}, fmt.Errorf("linalg: %d×%d matrix: %w", a.Rows, a.Cols, ErrNoConvergence)
	}
	var du, dv mat.Dense
	f.UTo(&du)
	f.VTo(&dv)
	return fromDense(&du), f.Values(nil), fromDense(&dv).T(), nil
}

func fromDense(d *mat.Dense) Matrix {
	m := New(d.Dims())
	for i := range m.Rows {
		copy(m.Row(i), d.RawRowView(i))
	}
	return m
}

// oversample is the number of columns of a randomized basis beyond the
// requested rank. Halko, Martinsson and Tropp (arXiv 0909.4061) show that with
// five to ten the error is close to the best possible.
const oversample = 8

// RandomizedSVD approximates the rank largest singular values of a and their
// vectors by subspace iteration (algorithms 4.4 and 5.1 of arXiv 0909.4061).
// normal returns independent standard normal numbers by index.
func RandomizedSVD(a Matrix, rank, iterations int, normal func(i int) float64) (u Matrix, s []float64, vt Matrix, err error) {
	if a.Rows < a.Cols { // draw the basis for the shorter side
		v, s, ut, err := RandomizedSVD(a.T(), rank, iterations, normal)
		return ut.T(), s, v.T(), err
	}
	k := min(a.Rows, a.Cols)
	rank = min(rank, k)
	omega := New(a.Cols, min(rank+oversample, k))
	for i := range omega.Data {
		omega.Data[i] = normal(i)
	}
	q, _ := QR(Mul(a, omega))
	for range iterations {
		z, _ := QR(MulT(a, q))
		q, _ = QR(Mul(a, z))
	}
	inner, s, vt, err := SVD(MulT(q, a))
	if err != nil {
		return Matrix{}, nil, Matrix{}, err
	}
	u = Mul(q, inner)
	return u.columns(rank), s[:rank], Matrix{rank, vt.Cols, vt.Data[:rank*vt.Cols]}, nil
}

// columns returns the first n columns.
func (m Matrix) columns(n int) Matrix {
	c := New(m.Rows, n)
	for i := range m.Rows {
		copy(c.Row(i), m.Row(i)[:n])
	}
	return c
}
