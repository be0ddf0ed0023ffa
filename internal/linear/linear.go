// Package linear implements ordinary least squares, as an example of a model that
// is not a language model but is stored in the safetensors format. It depends on
// package safetensors alone, and programs may import it; examples/linear does.
package linear

import (
	"fmt"
	"math"
)

// LinearRegression is the model y ≈ x·Coefficients + Intercept. Its zero value
// is ready to be fitted. Methods other than Fit only read a fitted model, so it
// is safe for concurrent use.
type LinearRegression struct {
	// NoIntercept fits a hyperplane through the origin; Intercept is then 0.
	NoIntercept bool
	// Coefficients has one value per column, nil before Fit.
	Coefficients []float64
	Intercept    float64
}

// Fit computes the coefficients that minimize the sum of squared residuals
//
//	Σᵢ (yᵢ − xᵢ·Coefficients − Intercept)²
//
// with a QR decomposition of the centered table, whose rows are the samples.
// The error is proportional to the condition number, not to its square as with
// the normal equations.
//
// It fails with ErrShape for a table without columns, rows of different lengths
// or a y of another length, with ErrNotFinite, with ErrTooFewRows for fewer
// rows than unknowns, and with a *RankError, which names the column, if the
// solution is not unique. After an error the model is unchanged.
func (m *LinearRegression) Fit(x [][]float64, y []float64) error {
	if err := checkTable(x, len(y)); err != nil {
		return err
	}
	cols := len(x[0])
	if err := checkFinite(x, y); err != nil {
		return err
	}
	unknowns, what := cols, fmt.Sprintf("%d columns", cols)
	if !m.NoIntercept {
		unknowns, what = unknowns+1, what+" and the intercept"
	}
	if len(x) < unknowns {
		return fmt.Errorf("linear: found %d rows, expected at least %d for %s: %w", len(x), unknowns, what, ErrTooFewRows)
	}
	coefficients, intercept, err := leastSquares(x, y, !m.NoIntercept)
	if err != nil {
		return err
	}
	m.Coefficients, m.Intercept = coefficients, intercept
	return nil
}

// Predict returns one value per row of x. It fails with ErrUnfitted, and with
// ErrShape if a row does not have one value per coefficient.
func (m *LinearRegression) Predict(x [][]float64) ([]float64, error) {
	if len(m.Coefficients) == 0 {
		return nil, fmt.Errorf("linear: predict: %w", ErrUnfitted)
	}
	y := make([]float64, len(x))
	for i, row := range x {
		if len(row) != len(m.Coefficients) {
			return nil, fmt.Errorf("linear: row %d: found %d columns, expected %d: %w", i, len(row), len(m.Coefficients), ErrShape)
		}
		for j, v := range row {
			y[i] += v * m.Coefficients[j]
		}
		y[i] += m.Intercept
	}
	return y, nil
}

// Score returns the coefficient of determination
//
//	R² = 1 − Σ(yᵢ − predictionᵢ)² / Σ(yᵢ − ȳ)²
//
// of the predictions for x: 1 if they are perfect, 0 if they are no better than
// the mean of y, and negative if they are worse. For a constant y, R² is 1 if
// the predictions are exact and 0 otherwise, as in scikit-learn. It fails as
// Predict does, with ErrShape if x and y differ in length, and with
// ErrTooFewRows for no rows.
func (m *LinearRegression) Score(x [][]float64, y []float64) (float64, error) {
	predicted, err := m.Predict(x)
	switch {
	case err != nil:
		return 0, err
	case len(y) != len(x):
		return 0, fmt.Errorf("linear: found %d targets, expected %d as there are rows: %w", len(y), len(x), ErrShape)
	case len(x) == 0:
		return 0, fmt.Errorf("linear: a score of no rows: %w", ErrTooFewRows)
	}
	average := mean(y)
	var residual, total float64 // square roots of the sums, whose squares could overflow
	for i, v := range y {
		residual = math.Hypot(residual, v-predicted[i])
		total = math.Hypot(total, v-average)
	}
	switch {
	case total != 0:
		return 1 - (residual/total)*(residual/total), nil
	case residual == 0:
		return 1, nil
	}
	return 0, nil
}

// checkTable checks that x is a rectangular table with one row per target.
func checkTable(x [][]float64, targets int) error {
	if len(x) == 0 {
		return fmt.Errorf("linear: found no rows: %w", ErrTooFewRows)
	}
	cols := len(x[0])
	if cols == 0 {
		return fmt.Errorf("linear: found rows without columns: %w", ErrShape)
	}
	for i, row := range x {
		if len(row) != cols {
			return fmt.Errorf("linear: row %d: found %d columns, expected %d as in row 0: %w", i, len(row), cols, ErrShape)
		}
	}
	if targets != len(x) {
		return fmt.Errorf("linear: found %d targets, expected %d as there are rows: %w", targets, len(x), ErrShape)
	}
	return nil
}

func checkFinite(x [][]float64, y []float64) error {
	for i, row := range x {
		for j, v := range row {
			if !finite(v) {
				return fmt.Errorf("linear: row %d, column %d: found %v: %w", i, j, v, ErrNotFinite)
			}
		}
		if !finite(y[i]) {
			return fmt.Errorf("linear: target %d: found %v: %w", i, y[i], ErrNotFinite)
		}
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
