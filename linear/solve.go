package linear

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/linalg"
)

const epsilon = 0x1p-52 // between 1 and the next float64

// leastSquares solves a table that has been checked.
//
// Columns and targets are first divided by powers of two, which is exact, so
// that neither sums nor squares leave the range of a float64; then their means
// are taken off, so that a column of large, similar values (dates, say) keeps
// its digits.
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
		if blur[j] = epsilon * before / norm(column); !(blur[j] < 1.0/8) { // NaN too: all zero
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

// normalize divides values by the power of two that brings the largest into
// [½, 1), and returns its exponent. Zeros stay.
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

// centre takes the mean off and returns it.
func centre(values []float64) float64 {
	average := mean(values)
	for i := range values {
		values[i] -= average
	}
	return average
}

// mean adds the mean of the deviations from a first mean, whose own rounding
// is the error of a plain sum.
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

// checkRank finds columns that others make up. The smallest singular value of
// the table, its columns brought to length 1, says how far it is from such a
// table, and is the same for r. The table itself is known up to the rounding of
// its values: to blur, relative to the length of each column without its mean.
// The decomposition adds some units in the last place.
//
// The singular vector is the combination that vanishes; its last column is made
// up by those before it.
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

// backSubstitute solves r·c = b for the upper triangle r, in place of b.
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
