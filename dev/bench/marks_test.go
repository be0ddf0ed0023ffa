package bench

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// computed is a report of rows that are held against peaks.
func computed() *Report {
	peak := Peak{Flops: 100e9, Bytes: 10e9}
	row := func(program, input string, seconds float64) *Row {
		return &Row{Group: "Products", Program: program, Name: "f32", Input: input, Flops: 8e9, Bytes: 1e9, Peak: peak, PeakRSS: int64(1e9 * seconds), Seconds: []float64{seconds}}
	}
	return &Report{Rows: []*Row{row("ours", "m=1", 0.1), row("torch", "m=1", 0.2), row("ours", "m=2", 0.4), row("ours", "m=3", 0.8)}}
}

func TestKindsOfMarks(t *testing.T) {
	r := computed()
	ours, torch := r.Rows[0].ID(), r.Rows[1].ID()
	r.Marks = []Mark{
		{Name: "time", Row: ours, Beside: []string{torch}, Factor: 0.6},
		{Name: "peak", Row: ours, FlopPeak: 0.8},
		{Name: "peak", Row: ours, FlopPeak: 0.81},
		{Name: "bandwidth", Row: ours, BytePeak: 0.9},
	}
	want := []Verdict{
		{Name: "time", Row: ours, Beside: "torch: f32", Asked: 0.6, Ratio: 0.5, Met: true},
		{Name: "peak", Row: ours, Beside: "peak of products", Asked: 0.8, Ratio: 0.8, Least: true, Met: true},
		{Name: "peak", Row: ours, Beside: "peak of products", Asked: 0.81, Ratio: 0.8, Least: true},
		{Name: "bandwidth", Row: ours, Beside: "peak of the memory", Asked: 0.9, Ratio: 1, Least: true, Met: true},
	}
	assert.Equal(t, want, r.Verdicts())
	assert.Equal(t, "≥ 0.8", want[1].asked())
	assert.Equal(t, "≤ 0.6", want[0].asked())
	r.Rows[0].Peak = Peak{}
	assert.Len(t, r.Verdicts(), 1, "a machine without a peak has no share of it")
}

// A group has a line for each row; columns without figures are left out.
func TestTablesOfProducts(t *testing.T) {
	const want = `
### Products

| program | what | on | median ms | p10 | p90 | GFLOP/s | of peak | GB/s | of peak | peak MB |
|---|---|---|---|---|---|---|---|---|---|---|
| ours | f32 | m=1 | 100 | 100 | 100 | 80.0 | 80.0 % | 10.00 | 100.0 % | 100.0 |
| torch | f32 | m=1 | 200 | 200 | 200 | 40.0 | 40.0 % | 5.00 | 50.0 % | 200.0 |
| ours | f32 | m=2 | 400 | 400 | 400 | 20.0 | 20.0 % | 2.50 | 25.0 % | 400.0 |
| ours | f32 | m=3 | 800 | 800 | 800 | 10.0 | 10.0 % | 1.25 | 12.5 % | 800.0 |
`
	r := computed()
	assert.Contains(t, r.Markdown(), want)
	text := r.Text()
	require.Len(t, text, 6)
	assert.Equal(t, []string{"  PROGRAM", "WHAT", "ON", "MEDIAN MS", "P10", "P90", "GFLOP/S", "OF PEAK", "GB/S", "OF PEAK", "PEAK MB"}, text[1])
	assert.Equal(t, []string{"  ours", "f32", "m=1", "100", "100", "100", "80.0", "80.0 %", "10.00", "100.0 %", "100.0"}, text[2])

	raw, err := json.Marshal(r)
	require.NoError(t, err)
	var got struct{ Rows []map[string]any }
	require.NoError(t, json.Unmarshal(raw, &got))
	require.Len(t, got.Rows, 4)
	assert.Equal(t, 0.8, got.Rows[0]["of_peak_flops"])
	assert.Equal(t, 1.0, got.Rows[0]["of_peak_bytes"])
	assert.Equal(t, map[string]any{"flop_per_s": 100e9, "byte_per_s": 10e9}, got.Rows[0]["peak"])
}

func TestSmallTimes(t *testing.T) {
	assert.Equal(t, "0.00116", milliseconds(1.16e-6))
	assert.Equal(t, "0.012", milliseconds(12e-6))
}
