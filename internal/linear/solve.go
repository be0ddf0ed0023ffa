package linear

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/linalg"
)

const epsilon = 0x1p-52 // distance from 1 to the next float64

// leastSquares solves a validated table.
//
// It first divides columns and targets by powers of two, which is exact, so
// that neither sums nor squares exceed the range of a float64. Then it
// subtracts their means, so that a column of large, similar values (dates, say)
// keeps its digits.
func leastSquares(x [][]float64, y []float64, withIntercept bool) (coefficients []float64, intercept float64, err error) {
	rows, cols := len(x), len(x[0])
	a, column := linalg.New(rows, cols), make([]float64, rows)
	scales, means, blur := make([]int, cols), make([]float64, cols), make([]float64, cols)
	for j := range cols {
		for i, row := range x {
			column[i] = row[j]
		}
		scales[j] = normalize(column)
		before := norm(column)
		if withIntercept {
			means[j] = centre(column)
		}
		if blur[j] = epsilon * before / norm(column); !(blur[j] < 1.0/8) { // also true for NaN, if all values are zero
			return nil, 0, &RankError{Column: j, Constant: true}
		}
		for i, v := range column {
			a.Row(i)[j] = v
		}
	}
	target := linalg.Matrix{Rows: rows, Cols: 1, Data: append([]float64(nil), y...)}
	scale := normalize(target.Data)
	average := 0.0
	if withIntercept {
		average = centre(target.Data)
	}

	q, r := linalg.QR(a)
	if err := checkRank(r, blur, rows); err != nil {
		return nil, 0, err
	}
	coefficients = backSubstitute(r, linalg.MulT(q, target).Data)
	intercept = average
	for j, c := range coefficients {
		intercept -= c * means[j]
		coefficients[j] = math.Ldexp(c, scale-scales[j])
	}
	intercept = math.Ldexp(intercept, scale)
	for j, c := range append(coefficients, intercept) {
		if !finite(c) {
			return nil, 0, fmt.Errorf("linear: unknown %d of %d is %v: %w", j, cols+1, c, ErrNotFinite)
		}
	}
	return coefficients, intercept, nil
}

// normalize divides values by a power of two, so that the largest is in [½, 1),
// and returns the exponent. Zeros are unchanged.
func normalize(values []float64) (exponent int) {
	largest := 0.0
	for _, v := range values {
		largest = max(largest, math.Abs(v))
	}
	_, exponent = math.Frexp(largest)
	for i, v := range values {
		values[i] = math.Ldexp(v, -exponent)
	}
	return exponent
}

// centre subtracts the mean and returns it.
func centre(values []float64) float64 {
	average := mean(values)
	for i := range values {
		values[i] -= average
	}
	return average
}

// mean corrects a first mean by the mean of the deviations from it; the
// rounding of the first mean is the error of a plain sum.
func mean(values []float64) float64 {
	n := float64(len(values))
	first := 0.0
	for _, v := range values {
		first += v / n
	}
	rest := 0.0
	for _, v := range values {
		rest += v - first
	}
	return first + rest/n
}

func norm(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v * v
	}
	return math.Sqrt(sum)
}

// checkRank finds linearly dependent columns. The smallest singular value of
// the table, with its columns scaled to length 1, is its distance to a singular
// table; r has the same singular values. The table itself is known only up to
// the rounding of its values: blur, relative to the length of each centered
// column. The decomposition adds a few units in the last place.
//
// The singular vector is the combination that vanishes; its last column depends
// on the previous ones.
func checkRank(r linalg.Matrix, blur []float64, rows int) error {
	unit := r.T()
	for j := range r.Cols {
		column := unit.Row(j)
		length := norm(column)
		for i := range column {
			column[i] /= length
		}
	}
	u, s, _, err := linalg.SVD(unit)
	if err != nil {
		return fmt.Errorf("linear: %w", err)
	}
	last := len(s) - 1
	if s[last] > 4*norm(blur)+8*epsilon*(float64(r.Cols)+math.Sqrt(float64(rows))) {
		return nil
	}
	column := last
	for math.Abs(u.Row(column)[last]) < 1e-6 {
		column--
	}
	return &RankError{Column: column}
}

// backSubstitute solves r·c = b in place of b, for an upper triangular r.
func backSubstitute(r linalg.Matrix, b []float64) []float64 {
	for j := r.Cols - 1; j >= 0; j-- {
		row := r.Row(j)
		for k := j + 1; k < r.Cols; k++ {
			b[j] -= row[k] * b[k]
		}
		b[j] /= row[j]
	}
	return b
}
