package linear

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A golden case of scripts/make_linear_goldens.py.
type golden struct {
	Name         string
	FitIntercept bool `json:"fit_intercept"`
	X            [][]float64
	Y            []float64
	Exact, LstSq solution
	Tolerance    float64
	Score        float64
}

type solution struct {
	Coefficients []float64
	Intercept    float64
}

// TestGoldens compares with the exact solutions and with those of NumPy.
func TestGoldens(t *testing.T) {
	raw, err := os.ReadFile("testdata/fits.json")
	require.NoError(t, err)
	var goldens []golden
	require.NoError(t, json.Unmarshal(raw, &goldens))
	require.Len(t, goldens, 7)
	for _, g := range goldens {
		t.Run(g.Name, func(t *testing.T) {
			m := LinearRegression{NoIntercept: !g.FitIntercept}
			require.NoError(t, m.Fit(g.X, g.Y))
			require.Len(t, m.Coefficients, len(g.Exact.Coefficients))
			for j, c := range g.Exact.Coefficients {
				assert.InEpsilon(t, c, m.Coefficients[j], g.Tolerance, "coefficient %d", j)
				assert.InEpsilon(t, g.LstSq.Coefficients[j], m.Coefficients[j], max(g.Tolerance, 1e-9), "NumPy's coefficient %d", j)
			}
			if g.FitIntercept {
				assert.InEpsilon(t, g.Exact.Intercept, m.Intercept, 10*g.Tolerance)
			} else {
				assert.Zero(t, m.Intercept)
			}
			score, err := m.Score(g.X, g.Y)
			require.NoError(t, err)
			assert.InDelta(t, g.Score, score, 1e-9)
		})
	}
}

// drawTable draws a well-conditioned table: random, and heavy on a diagonal.
func drawTable(t *rapid.T) [][]float64 {
	cols := rapid.IntRange(1, 6).Draw(t, "columns")
	rows := rapid.IntRange(cols+1, 40).Draw(t, "rows")
	x := make([][]float64, rows)
	for i := range x {
		x[i] = rapid.SliceOfN(rapid.Float64Range(-1, 1), cols, cols).Draw(t, "row")
		if i < cols {
			x[i][i] += 10
		}
	}
	return x
}

// TestRecovery: what is a linear function is found again.
func TestRecovery(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawTable(t)
		truth := LinearRegression{
			NoIntercept:  rapid.Bool().Draw(t, "no intercept"),
			Coefficients: rapid.SliceOfN(rapid.Float64Range(-100, 100), len(x[0]), len(x[0])).Draw(t, "coefficients"),
		}
		if !truth.NoIntercept {
			truth.Intercept = rapid.Float64Range(-100, 100).Draw(t, "intercept")
		}
		y, err := truth.Predict(x)
		require.NoError(t, err)
		m := LinearRegression{NoIntercept: truth.NoIntercept}
		require.NoError(t, m.Fit(x, y))
		require.InDeltaSlice(t, truth.Coefficients, m.Coefficients, 1e-10)
		require.InDelta(t, truth.Intercept, m.Intercept, 1e-10)
		got, err := m.Predict(x)
		require.NoError(t, err)
		require.InDeltaSlice(t, y, got, 1e-10)
		score, err := m.Score(x, y)
		require.NoError(t, err)
		if total := spread(y); total > 1e-3 {
			require.InDelta(t, 1, score, 1e-9)
		}
	})
}

func spread(y []float64) float64 {
	least, most := y[0], y[0]
	for _, v := range y {
		least, most = min(least, v), max(most, v)
	}
	return most - least
}

// TestOrthogonality: at the minimum the residuals are orthogonal to every
// column, and with an intercept they add up to zero.
func TestOrthogonality(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawTable(t)
		y := rapid.SliceOfN(rapid.Float64Range(-100, 100), len(x), len(x)).Draw(t, "y")
		m := LinearRegression{NoIntercept: rapid.Bool().Draw(t, "no intercept")}
		require.NoError(t, m.Fit(x, y))
		predicted, err := m.Predict(x)
		require.NoError(t, err)
		sum, products := 0.0, make([]float64, len(x[0]))
		for i, row := range x {
			r := y[i] - predicted[i]
			sum += r
			for j, v := range row {
				products[j] += r * v
			}
		}
		for j, p := range products {
			require.InDelta(t, 0, p, 1e-9, "column %d", j)
		}
		if !m.NoIntercept {
			require.InDelta(t, 0, sum, 1e-9)
		}
	})
}

// TestScale: a column given in other units, powers of two here, changes its own
// coefficient alone, and that exactly.
func TestScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawTable(t)
		y := rapid.SliceOfN(rapid.Float64Range(-100, 100), len(x), len(x)).Draw(t, "y")
		var m, scaled LinearRegression
		require.NoError(t, m.Fit(x, y))
		j, e := rapid.IntRange(0, len(x[0])-1).Draw(t, "column"), rapid.IntRange(-900, 900).Draw(t, "exponent")
		for i := range x {
			v := math.Ldexp(x[i][j], e)
			if math.Ldexp(v, -e) != x[i][j] {
				t.Skip("a subnormal lost bits")
			}
			x[i][j] = v
		}
		require.NoError(t, scaled.Fit(x, y))
		m.Coefficients[j] = math.Ldexp(m.Coefficients[j], -e)
		require.Equal(t, m, scaled)
	})
}

func TestRank(t *testing.T) {
	x := [][]float64{{1, 2, 5}, {2, -1, 7}, {4, 4, 5}, {8, 0, 1}, {3, 3, 3}}
	y := []float64{1, 2, 3, 4, 5}
	for _, c := range []struct {
		name        string
		column      int
		noIntercept bool
		value       func(row []float64) float64
		says        string
	}{
		{"twice the first", 1, false, func(r []float64) float64 { return 2 * r[0] }, "column 1 (counted from 0) is a combination"},
		{"a difference", 2, true, func(r []float64) float64 { return 0.1*r[0] - 0.7*r[1] }, "column 2"},
		{"one less than the first", 1, false, func(r []float64) float64 { return r[0] - 1 }, "column 1"},
		{"constant", 0, false, func([]float64) float64 { return 0.1 }, "column 0 (counted from 0) is the same in every row"},
		{"zero", 2, true, func([]float64) float64 { return 0 }, "column 2 (counted from 0) is the same in every row"},
		{"tiny multiple", 2, false, func(r []float64) float64 { return 1e-300 * r[1] }, "column 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := make([][]float64, len(x))
			for i, row := range x {
				table[i] = append([]float64(nil), row...)
				table[i][c.column] = c.value(row)
			}
			m := LinearRegression{NoIntercept: c.noIntercept, Coefficients: []float64{7}}
			err := m.Fit(table, y)
			require.ErrorIs(t, err, ErrRankDeficient)
			var rank *RankError
			require.ErrorAs(t, err, &rank)
			require.Equal(t, c.column, rank.Column)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, []float64{7}, m.Coefficients, "the model has changed")
		})
	}
	// Nothing is wrong with these: constant without an intercept, one less
	// than another without one, and nearly, but not quite, the same.
	for i := range x {
		x[i][0], x[i][1] = 1, x[i][2]-1
	}
	m := LinearRegression{NoIntercept: true}
	require.ErrorContains(t, m.Fit(x, y), "column 2")
	for i := range x {
		x[i][2] += 1e-9 * float64(i*i)
	}
	require.NoError(t, m.Fit(x, y))
}

// TestRankOfRandomTables: whichever column is made up of others, and however
// far from zero they are, the last column is the one that is too many; before
// that there is nothing wrong.
func TestRankOfRandomTables(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		cols := 2 + r.IntN(15)
		rows := cols + 1 + r.IntN(300)
		x, y := make([][]float64, rows), make([]float64, rows)
		offset := math.Pow(10, float64(r.IntN(7)))
		for i := range x {
			x[i] = make([]float64, cols)
			for j := range x[i] {
				x[i][j] = r.NormFloat64() + offset*float64(j%2)
			}
			y[i] = r.NormFloat64()
		}
		var m LinearRegression
		require.NoError(t, m.Fit(x, y))
		combination, made := make([]float64, cols), r.IntN(cols)
		for j := range combination {
			combination[j] = r.NormFloat64()
		}
		for _, row := range x {
			row[made] = 0
			sum := 0.0
			for j, v := range row {
				sum += combination[j] * v
			}
			row[made] = sum
		}
		var rank *RankError
		require.ErrorAs(t, m.Fit(x, y), &rank)
		require.Equal(t, RankError{Column: cols - 1}, *rank)
	}
}

func TestFitErrors(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name string
		x    [][]float64
		y    []float64
		kind error
		says string
	}{
		{"no rows", nil, nil, ErrTooFewRows, "no rows"},
		{"no columns", [][]float64{{}}, []float64{1}, ErrShape, "without columns"},
		{"ragged", [][]float64{{1, 2}, {3}}, []float64{1, 2}, ErrShape, "row 1: found 1 columns, expected 2"},
		{"targets", [][]float64{{1}, {3}}, []float64{1}, ErrShape, "found 1 targets, expected 2"},
		{"few rows", [][]float64{{1, 2}, {3, 5}}, []float64{1, 2}, ErrTooFewRows, "found 2 rows, expected at least 3 for 2 columns and the intercept"},
		{"NaN", [][]float64{{1}, {nan}}, []float64{1, 2}, ErrNotFinite, "row 1, column 0: found NaN"},
		{"infinity", [][]float64{{1}, {2}}, []float64{inf, 2}, ErrNotFinite, "target 0: found +Inf"},
		{"beyond float64", [][]float64{{1e-300}, {2e-300}}, []float64{1, 1e100}, ErrNotFinite, "unknown 0 of 2 is +Inf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m LinearRegression
			err := m.Fit(c.x, c.y)
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.says)
			require.Zero(t, m)
		})
	}
	few := LinearRegression{NoIntercept: true}
	require.ErrorContains(t, few.Fit([][]float64{{1, 2}}, []float64{1}), "expected at least 2 for 2 columns:")
}

func TestPredictAndScoreErrors(t *testing.T) {
	var m LinearRegression
	_, err := m.Predict([][]float64{{1}})
	require.ErrorIs(t, err, ErrUnfitted)
	_, err = m.Score([][]float64{{1}}, []float64{1})
	require.ErrorIs(t, err, ErrUnfitted)
	m.Coefficients = []float64{1, 2}
	_, err = m.Predict([][]float64{{1, 1}, {1}})
	require.ErrorIs(t, err, ErrShape)
	require.ErrorContains(t, err, "row 1: found 1 columns, expected 2")
	_, err = m.Score([][]float64{{1, 1}}, []float64{1, 2})
	require.ErrorIs(t, err, ErrShape)
	_, err = m.Score(nil, nil)
	require.ErrorIs(t, err, ErrTooFewRows)
}

func TestScore(t *testing.T) {
	m := LinearRegression{Coefficients: []float64{1}}
	x := [][]float64{{1}, {2}, {3}}
	for _, c := range []struct {
		y    []float64
		want float64
	}{
		{[]float64{1, 2, 3}, 1},
		{[]float64{1, 2, 6}, 1 - 9.0/14},
		{[]float64{3, 2, 1}, -3},
		{[]float64{2, 2, 2}, 0},
	} {
		score, err := m.Score(x, c.y)
		require.NoError(t, err)
		require.InDelta(t, c.want, score, 1e-15, c.y)
	}
	flat := LinearRegression{Coefficients: []float64{0}, Intercept: 2}
	score, err := flat.Score(x, []float64{2, 2, 2})
	require.NoError(t, err)
	require.Equal(t, 1.0, score)
	huge := LinearRegression{Coefficients: []float64{1e200}}
	score, err = huge.Score(x, []float64{1e200, 2e200, 6e200})
	require.NoError(t, err)
	require.InDelta(t, 1-9.0/14, score, 1e-14)
}
