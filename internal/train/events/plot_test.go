package events

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// falling is a loss that falls from 4 towards 1, with a little noise.
func falling(n int) []Record {
	var records []Record
	for i := range n {
		r := Record{Step: int64(i + 1), Scalars: []Scalar{{Loss, 1 + 3*math.Exp(-float64(i)/30) + 0.1*math.Sin(float64(i*i))}}}
		if (i+1)%25 == 0 {
			r.Scalars = append(r.Scalars, Scalar{EvalLoss, 1.1 + 3*math.Exp(-float64(i)/30)})
		}
		records = append(records, r)
	}
	return records
}

func TestPlotLoss(t *testing.T) {
	path := filepath.Join(t.TempDir(), "loss.svg")
	records := falling(200)
	require.NoError(t, PlotLoss(path, "a <title>", records))
	one, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, PlotLoss(path, "a <title>", records))
	two, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(one, two), "same records, same bytes")
	for _, want := range []string{"a &lt;title&gt;", ">train<", ">train, smoothed<", ">eval<", ">loss<", ">step<", ">200<", "Liberation Sans',Arial"} {
		assert.Contains(t, string(one), want)
	}
	// The records end at step 200 with the eighth evaluation.
	var circles []string
	d := xml.NewDecoder(bytes.NewReader(one))
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			circles = append(circles, e.Attr[0].Value)
		}
	}
	require.Len(t, circles, 8)
	// 3 % of the width is left on both sides, and steps are never below 0.
	a := axis{low: 0, high: 200 + 0.03*199, from: plotLeft, to: plotWidth - plotRight}
	assert.Equal(t, strconv.FormatFloat(a.at(200), 'f', 1, 64), circles[7])
}

func TestPlotOddData(t *testing.T) {
	one := func(values ...float64) []Record {
		var records []Record
		for i, v := range values {
			records = append(records, Record{Step: int64(i), Scalars: []Scalar{{Loss, v}}})
		}
		return records
	}
	for name, records := range map[string][]Record{
		"one point":      one(2),
		"a zero":         one(0),
		"all equal":      one(3, 3, 3),
		"nearly equal":   one(1e9, math.Nextafter(1e9, 2e9)),
		"tiny":           one(1e-300, 2e-300),
		"huge":           one(-math.MaxFloat32, math.MaxFloat32),
		"not a number":   one(math.NaN(), 1, math.Inf(1), 2, 1e300),
		"very long":      falling(30000),
		"evaluation":     {{Step: 5, Scalars: []Scalar{{EvalLoss, 1}}}},
		"steps far away": {{Step: math.MaxInt64, Scalars: []Scalar{{Loss, 1}}}, {Step: math.MaxInt64 - 1, Scalars: []Scalar{{Loss, 2}}}},
	} {
		svg, err := renderLoss(name, records)
		require.NoError(t, err, name)
		assert.Less(t, len(svg), 200_000, name)
		assert.NotContains(t, string(svg), "NaN", name)
	}
	path := filepath.Join(t.TempDir(), "loss.svg")
	err := PlotLoss(path, "", one(math.NaN()))
	assert.ErrorIs(t, err, ErrNoLoss)
	assert.ErrorContains(t, err, path)
	assert.NoFileExists(t, path)
}

func TestSmooth(t *testing.T) {
	// Span 3 halves the weight per step of distance.
	got := smooth([]point{{1, 4}, {2, 0}, {3, 8}}, 3)
	want := []point{{1, (4 + 0 + 8./4) / 1.75}, {2, (4./2 + 0 + 8./2) / 2}, {3, (4./4 + 0 + 8) / 1.75}}
	for i := range want {
		assert.Equal(t, want[i].x, got[i].x)
		assert.InDelta(t, want[i].y, got[i].y, 1e-12)
	}
	assert.Equal(t, []point{{7, 5}}, smooth([]point{{7, 5}}, 1))
	assert.Equal(t, []point{{1, 5}, {2, 6}}, smooth([]point{{1, 5}, {2, 6}}, 1), "span 1 changes nothing")
}

func TestThinKeepsPeaks(t *testing.T) {
	c := make([]point, 10000)
	for i := range c {
		c[i].x = float64(i)
	}
	c[1234].y, c[1240].y, c[7777].y = 9, -9, 5
	got := thin(c, 100)
	assert.LessOrEqual(t, len(got), 100)
	for _, peak := range []int{1234, 1240, 7777} {
		assert.Contains(t, got, c[peak])
	}
	for i := 1; i < len(got); i++ {
		assert.Less(t, got[i-1].x, got[i].x)
	}
	assert.Equal(t, c[:50], thin(c[:50], 100))
}

func TestTicks(t *testing.T) {
	labels := func(most int, whole bool, low, high float64) (out []string) {
		a := axis{low: low, high: high}
		for _, k := range a.ticks(most, whole) {
			x, err := strconv.ParseFloat(k.label, 64)
			require.NoError(t, err)
			assert.InDelta(t, k.value, x, 1e-9)
			out = append(out, k.label)
		}
		return out
	}
	assert.Equal(t, []string{"0", "1", "2", "3"}, labels(10, true, 0, 3.1))
	assert.Equal(t, []string{"0", "50", "100", "150", "200"}, labels(5, true, 0, 240))
	assert.Equal(t, []string{"2.0", "2.5", "3.0"}, labels(3, false, 1.9, 3.2))
	assert.Equal(t, []string{"-0.02", "0.00", "0.02"}, labels(3, false, -0.021, 0.03))
	assert.Equal(t, []string{"0.0", "0.5", "1.0"}, labels(3, false, -0.1, 1.2), "no minus zero")
}
