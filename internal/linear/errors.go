package linear

import (
	"errors"
	"fmt"
)

// Errors of this package, for errors.Is.
var (
	// ErrUnfitted reports a model without coefficients: call Fit first.
	ErrUnfitted = errors.New("the model has not been fitted: call Fit first")
	// ErrShape reports tables, targets and tensors of a wrong size.
	ErrShape = errors.New("wrong shape")
	// ErrTooFewRows reports fewer rows than unknowns.
	ErrTooFewRows = errors.New("fewer rows than unknowns")
	// ErrRankDeficient is wrapped by RankError.
	ErrRankDeficient = errors.New("the columns are linearly dependent")
	// ErrNotFinite reports NaN or infinity, in the data or because the
	// coefficients exceed the range of a float64.
	ErrNotFinite = errors.New("not a finite number")
	// ErrFile reports a file that does not contain a linear regression.
	ErrFile = errors.New("not the file of a linear regression")
)

// RankError reports the column that makes the coefficients ambiguous. It wraps
// ErrRankDeficient.
type RankError struct {
	// Column is the first column, counted from 0, that is a linear combination
	// of the previous columns and the intercept.
	Column int
	// Constant is set if all rows have the same value in the column, which the
	// intercept already represents, or zero.
	Constant bool
}

// Error returns a message with the column.
func (e *RankError) Error() string {
	why := "is a combination of the columns before it"
	if e.Constant {
		why = "is the same in every row"
	}
	return fmt.Sprintf("linear: column %d (counted from 0) %s: %v", e.Column, why, ErrRankDeficient)
}

// Unwrap returns ErrRankDeficient.
func (e *RankError) Unwrap() error { return ErrRankDeficient }
