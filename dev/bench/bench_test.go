package bench

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestQuantile(t *testing.T) {
	samples := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4, 0.1: 1.3, 0.9: 3.7} {
		assert.InDelta(t, want, Quantile(samples, q), 1e-12, q)
	}
	assert.Equal(t, []float64{4, 1, 3, 2}, samples, "the samples stay in their order")
	assert.Equal(t, 7.0, Quantile([]float64{7}, 0.9))
	assert.True(t, math.IsNaN(Quantile(nil, 0.5)))
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Float64Range(0, 100), 1, 20).Draw(t, "samples")
		p, q := rapid.Float64Range(0, 1).Draw(t, "p"), rapid.Float64Range(0, 1).Draw(t, "q")
		low, high := Quantile(samples, min(p, q)), Quantile(samples, max(p, q))
		require.LessOrEqual(t, low, high+1e-12)
		require.LessOrEqual(t, slices.Min(samples), low)
		require.GreaterOrEqual(t, slices.Max(samples), high)
	})
}

func TestFigures(t *testing.T) {
	r := Row{Seconds: []float64{2, 1, 4}, Bytes: 3e9, Flops: 5e9}
	assert.Equal(t, Figures{Runs: 3, Median: 2, P10: 1.2, P90: 3.6, Min: 1, Rate: 1.5, GFlops: 2.5}, r.Figures())
	assert.Equal(t, Figures{}, (&Row{Bytes: 1}).Figures())
	assert.Zero(t, (&Row{Bytes: 1, Seconds: []float64{0}}).Figures().Rate, "a clock that stood still")
}

// sample is a report with rows of two groups, one of which has failed.
func sample() *Report {
	return &Report{
		Title:       "load",
		Environment: Environment{CPU: "abacus", Cores: 2, Threads: 1, Memory: 8e9, Platform: "linux/amd64", Go: "go1.26", FileSystem: "ext4"},
		Rows: []*Row{
			{Group: "Read", Program: "ours", Name: "mmap", Input: "big", Bytes: 1e9, Seconds: []float64{0.1, 0.2, 0.3}, PeakRSS: 2e6},
			{Group: "Read", Program: "ours", Name: "mmap", Input: "small", Bytes: 1e6, Seconds: []float64{0.001}, PeakRSS: 1e6, Detail: "by hand", Share: 0.02},
			{Group: "Read", Program: "a|b", Name: "pread", Input: "big", Bytes: 1e9, Seconds: []float64{0.4}},
			{Group: "Read", Program: "a|b", Name: "pread", Input: "small", Bytes: 1e6, Failure: "fell over"},
			{Group: "Open", Program: "ours", Name: "Open", Input: "big", Seconds: []float64{0.00001234}},
		},
		Marks: []Mark{
			{Name: "reading", Row: "Read: ours: mmap, big", Beside: []string{"Read: a|b: pread, big", "Read: gone: pread, big"}, Factor: 0.5},
			{Name: "reading", Row: "Read: ours: mmap, small", Beside: []string{"Read: a|b: pread, small"}, Factor: 0.5},
			{Name: "slower", Row: "Read: a|b: pread, big", Beside: []string{"Read: ours: mmap, big"}, Factor: 1},
			{Name: "gone", Row: "Read: ours: gone, big", FlopPeak: 1},
		},
	}
}

func TestVerdicts(t *testing.T) {
	r := sample()
	assert.Equal(t, []Verdict{
		{Name: "reading", Row: "Read: ours: mmap, big", Beside: "a|b: pread", Asked: 0.5, Ratio: 0.5, Met: true},
		{Name: "slower", Row: "Read: a|b: pread, big", Beside: "ours: mmap", Asked: 1, Ratio: 2},
	}, r.Verdicts(), "what was not measured has no verdict")
	r.Rows = append(r.Rows, &Row{Group: "Read", Program: "gone", Name: "pread", Input: "big", Seconds: []float64{0.1}})
	v := r.Verdicts()[0]
	assert.Equal(t, 2.0, v.Ratio, "the fastest counts")
	assert.False(t, v.Met)
}

func TestMarkdown(t *testing.T) {
	const want = `abacus, 2 cores, 1 threads, 8.0 GB of memory, linux/amd64, go1.26, files on ext4; 0001-01-01.

### Read

| program | what | on | median ms | p10 | p90 | GB/s | peak MB |  |
|---|---|---|---|---|---|---|---|---|
| ours | mmap | big | 200 | 120 | 280 | 5.00 | 2.0 |  |
| ours | mmap | small | 1.00 | 1.00 | 1.00 | 1.00 | 1.0 | 2.00 % of the input; by hand |
| a\|b | pread | big | 400 | 400 | 400 | 2.50 |  |  |
| a\|b | pread | small | – |  |  |  |  | fell over |

### Open

| program | what | on | median ms | p10 | p90 |
|---|---|---|---|---|---|
| ours | Open | big | 0.012 | 0.012 | 0.012 |

### Marks

|  | what | found | asked | beside |
|---|---|---|---|---|
| met | reading | 0.500 | ≤ 0.5 | a\|b: pread |
| MISSED | slower | 2.000 | ≤ 1 | ours: mmap |
`
	assert.Equal(t, want, sample().Markdown())
	assert.NotContains(t, (&Report{}).Markdown(), "Marks")
}

func TestText(t *testing.T) {
	assert.Equal(t, [][]string{
		{"Read"}, {"  PROGRAM", "WHAT", "ON", "MEDIAN MS", "P10", "P90", "GB/S", "PEAK MB", ""},
		{"  ours", "mmap", "big", "200", "120", "280", "5.00", "2.0", ""},
		{"  ours", "mmap", "small", "1.00", "1.00", "1.00", "1.00", "1.0", "2.00 % of the input; by hand"},
		{"  a|b", "pread", "big", "400", "400", "400", "2.50", "", ""},
		{"  a|b", "pread", "small", "–", "", "", "", "", "fell over"},
		{"Open"}, {"  PROGRAM", "WHAT", "ON", "MEDIAN MS", "P10", "P90"},
		{"  ours", "Open", "big", "0.012", "0.012", "0.012"},
		{"Marks"}, {"  ", "WHAT", "FOUND", "ASKED", "BESIDE"},
		{"  met", "reading", "0.500", "≤ 0.5", "a|b: pread"},
		{"  MISSED", "slower", "2.000", "≤ 1", "ours: mmap"},
	}, sample().Text())
}

func TestJSON(t *testing.T) {
	raw, err := json.Marshal(sample())
	require.NoError(t, err)
	var got struct {
		Title       string
		Environment struct{ CPU string }
		Rows        []map[string]any
		Marks       []map[string]any
	}
	require.NoError(t, json.Unmarshal(raw, &got))
	assert.Equal(t, "load", got.Title)
	assert.Equal(t, "abacus", got.Environment.CPU)
	require.Len(t, got.Rows, 5)
	assert.Equal(t, map[string]any{
		"group": "Read", "program": "ours", "name": "mmap", "input": "big", "bytes": 1e9, "peak_rss_bytes": 2e6, "seconds": []any{0.1, 0.2, 0.3},
		"runs": 3.0, "median_s": 0.2, "p10_s": Quantile([]float64{0.1, 0.2, 0.3}, 0.1), "p90_s": 0.28, "min_s": 0.1, "gb_per_s": 5.0,
	}, got.Rows[0])
	assert.Equal(t, "fell over", got.Rows[3]["failure"])
	assert.Equal(t, []any{}, got.Rows[3]["seconds"])
	assert.Equal(t, map[string]any{"name": "slower", "row": "Read: a|b: pread, big", "beside": "ours: mmap", "asked": 1.0, "ratio": 2.0, "met": false}, got.Marks[1])
	raw, err = json.Marshal(&Report{})
	require.NoError(t, err)
	assert.Contains(t, string(raw), `"rows":[],"marks":[]`)
}
