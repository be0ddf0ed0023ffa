package linear

import (
	"errors"
	"fmt"
)

// What can go wrong, for errors.Is.
var (
	// ErrUnfitted is the error of a model without coefficients: call Fit first.
	ErrUnfitted = errors.New("the model has not been fitted: call Fit first")
	// ErrShape is the error for tables, targets and tensors of a wrong size.
	ErrShape = errors.New("wrong shape")
	// ErrTooFewRows is the error for fewer rows than unknowns.
	ErrTooFewRows = errors.New("fewer rows than unknowns")
	// ErrRankDeficient is what a RankError wraps.
	ErrRankDeficient = errors.New("the columns are linearly dependent")
	// ErrNotFinite is the error for NaN and infinity, in the data or because
	// the coefficients exceed the range of a float64.
	ErrNotFinite = errors.New("not a finite number")
	// ErrFile is the error for a file that holds no linear regression.
	ErrFile = errors.New("not the file of a linear regression")
)

// RankError says which column leaves the coefficients undetermined. It wraps
// ErrRankDeficient.
type RankError struct {
	// Column is the first column, counted from 0, that the columns before it
	// and the intercept already make up.
	Column int
	// Constant is set where every row has the same value there, which is what
	// the intercept is for, or zero.
	Constant bool
}

// Error names the column.
func (e *RankError) Error() string {
	why := "is a combination of the columns before it"
	if e.Constant {
		why = "is the same in every row"
	}
	return fmt.Sprintf("linear: column %d (counted from 0) %s: %v", e.Column, why, ErrRankDeficient)
}

// Unwrap returns ErrRankDeficient.
func (e *RankError) Unwrap() error { return ErrRankDeficient }
