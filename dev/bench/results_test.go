package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// dated is a report that can be kept.
func dated() *Report {
	r := sample()
	r.Command, r.Note = "lorafuse bench load --only '<a&b>'", "of one day"
	r.Environment.Time = time.Date(2026, 11, 24, 1, 2, 3, 0, time.UTC)
	return r
}

// asText is a report for comparing.
func asText(t require.TestingT, r *Report) string {
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	return string(raw)
}

func TestResultsAreKept(t *testing.T) {
	first, second := dated(), dated()
	second.Title, second.Marks = "again", nil
	var b bytes.Buffer
	require.NoError(t, WriteResults(&b, []*Report{first, second}))
	assert.Equal(t, 2*5, strings.Count(b.String(), `{"group":`), "rows")
	for line := range strings.Lines(b.String()) {
		assert.LessOrEqual(t, strings.Count(line, `"program":`), 1, "a row has a line of its own")
	}
	assert.Contains(t, b.String(), `'<a&b>'`)
	got, err := ReadResults(&b)
	require.NoError(t, err)
	require.Len(t, got, 2)
	assert.JSONEq(t, asText(t, first), asText(t, got[0]))
	assert.JSONEq(t, asText(t, second), asText(t, got[1]))
	assert.Equal(t, first.Rows, got[0].Rows)
	assert.Equal(t, first.Verdicts(), got[0].Verdicts(), "marks are gone, what was found is not")
	assert.Equal(t, first.Text(), got[0].Text())

	printed, err := json.MarshalIndent(first, "", "  ")
	require.NoError(t, err)
	got, err = ReadResults(bytes.NewReader(printed))
	require.NoError(t, err)
	assert.Equal(t, first.Rows, got[0].Rows)
}

// Figures whose samples nobody kept are read as they are written, and only they.
func TestStatedFigures(t *testing.T) {
	const text = `{"title": "step", "environment": {"time": "2026-11-24T00:00:00Z", "cpu": "abacus", "threads": 2}, "rows": [
		{"group": "g", "program": "p", "name": "stated", "input": "i", "tokens": 10, "flops": 8e9, "seconds": [], "runs": 3, "median_s": 2, "p10_s": 1, "p90_s": 4, "token_per_s": 77},
		{"group": "g", "program": "p", "name": "median", "input": "i", "median_s": 0.5},
		{"group": "g", "program": "p", "name": "sampled", "input": "i", "seconds": [1, 3], "median_s": 9},
		{"group": "g", "program": "p", "name": "none", "input": "i", "failure": "fell over"}], "marks": []}`
	got, err := ReadResults(strings.NewReader(text))
	require.NoError(t, err)
	rows := got[0].Rows
	assert.Equal(t, Figures{Runs: 3, Median: 2, P10: 1, P90: 4, GFlops: 4, Speed: 5}, rows[0].Figures(), "rates follow from the median")
	assert.Equal(t, Figures{Median: 0.5}, rows[1].Figures())
	assert.Equal(t, 2.0, rows[2].Figures().Median)
	assert.Equal(t, []bool{true, true, true, false}, []bool{rows[0].Measured(), rows[1].Measured(), rows[2].Measured(), rows[3].Measured()})
	lines := got[0].Text()
	assert.Equal(t, []string{"  p", "stated", "i", "2000", "1000", "4000", "5", "4.0", ""}, lines[2])
	assert.Equal(t, []string{"  p", "median", "i", "500", "", "", "", "", ""}, lines[3])
	assert.Contains(t, got[0].Markdown(), "| p | stated | i | 2000 | 1000 | 4000 | 5 | 4.0 |")
}

func TestResultsThatAreNone(t *testing.T) {
	const (
		environment = `"environment": {"time": "2026-11-24T00:00:00Z", "cpu": "abacus", "threads": 2}`
		row         = `{"group": "g", "program": "p", "name": "n", "input": "i", "seconds": [1]}`
		head        = `{"title": "step", ` + environment + `, `
	)
	for text, want := range map[string]string{
		"":                      "nothing is there",
		" \n":                   "nothing is there",
		"version https://git":   "line 1: invalid character 'v' looking for beginning of value",
		`{"title": "step"`:      "the file ends in the middle of a report",
		`{"title": 3}`:          "line 1: title: found number, expected string",
		"\n{\n\n\"title\": {}}": "line 4: title: found object, expected string",
		head + `"rows": [` + row + "]}\n\n{\n\"title\": 3}":    "line 4: title: found number",
		head + `"rows": [` + row + "]}\n\n{\n\"title\": oops}": "line 4: invalid character 'o'",
		`{"tittle": "step"}`:   `line 1: unknown field "tittle"`,
		"{\n\"title\": oops}":  "line 2: invalid character 'o'",
		`{"rows": []}`:         "the report that begins in line 1: title: is missing",
		`{"title": "a\u0007"}`: `found a control character in "a\a"`,
		`{"title": "step", "environment": {"cpu": "abacus", "threads": 2}, "rows": [` + row + `]}`:                "environment: time: is missing",
		`{"title": "step", "environment": {"time": "2026-11-24T00:00:00Z", "threads": 2}, "rows": [` + row + `]}`: "environment: cpu: is missing",
		`{"title": "step", "environment": {"time": "2026-11-24T00:00:00Z", "cpu": "x"}, "rows": [` + row + `]}`:   "threads: found 0, expected 1 or more",
		head + `"rows": []}`: "rows: found none",
		head + `"rows": [` + row + `]}` + "\n\n" + head + `"rows": []}`:                                               "the report that begins in line 3: rows: found none",
		head + `"rows": [` + row + `, ` + row + `]}`:                                                                  `row 2, "g: p: n, i": is there twice`,
		head + `"rows": [{"group": "g", "program": "p", "input": "i"}]}`:                                              `row 1, "g: p: , i": name: is missing`,
		head + `"rows": [{"group": "g\n", "program": "p", "name": "n"}]}`:                                             "control character",
		head + `"rows": [{"group": "g", "program": "p", "name": "n", "seconds": [1, -1]}]}`:                           "seconds: sample 2: found -1, expected 0 or more",
		head + `"rows": [{"group": "g", "program": "p", "name": "n", "median_s": -2}]}`:                               "median_s: found -2, expected 0 or more",
		head + `"rows": [{"group": "g", "program": "p", "name": "n", "peak": {"flop_per_s": -2}}]}`:                   "peak: flop_per_s: found -2",
		head + `"rows": [` + row + `], "marks": [{"name": "m", "row": "r", "beside": "b", "asked": 1, "ratio": -1}]}`: `mark 1, "m": ratio: found -1, expected 0 or more`,
		head + `"rows": [` + row + `], "marks": [{"name": "m", "row": "r\u0000"}]}`:                                   `mark 1, "m": found a control character`,
	} {
		_, err := ReadResults(strings.NewReader(text))
		assert.ErrorIs(t, err, ErrResults, text)
		assert.ErrorContains(t, err, want, text)
	}
}

func FuzzReadResults(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, WriteResults(&b, []*Report{dated()}))
	f.Add(b.Bytes())
	f.Add([]byte(`{"title": "t", "environment": {"time": "2026-11-24T00:00:00Z", "cpu": "x", "threads": 1}, "rows": [{"group": "g", "program": "p", "name": "n", "median_s": 1e-300, "tokens": 1e300}]}`))
	f.Add([]byte("{} {"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		reports, err := ReadResults(bytes.NewReader(raw))
		if err != nil {
			require.ErrorIs(t, err, ErrResults)
			return
		}
		var b bytes.Buffer
		if err := WriteResults(&b, reports); err != nil {
			return // rates that no number holds
		}
		again, err := ReadResults(&b)
		require.NoError(t, err)
		require.Equal(t, len(reports), len(again))
		for i := range reports {
			require.Equal(t, reports[i].Rows, again[i].Rows)
			require.Equal(t, reports[i].Text(), again[i].Text())
			require.NotEmpty(t, reports[i].Markdown())
		}
	})
}

// Any report that is kept is read as it was.
func TestAnyResultsAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOf(rapid.RuneFrom([]rune("ab×·,: <>&|\"\\é")))
		number := rapid.Float64Range(0, 1e12)
		r := dated()
		r.Rows, r.Marks = nil, nil
		for i := range rapid.IntRange(1, 5).Draw(t, "rows") {
			r.Rows = append(r.Rows, &Row{
				Group: "g" + word.Draw(t, "group"), Program: string(rune('a' + i)), Name: "n" + word.Draw(t, "name"), Input: word.Draw(t, "input"),
				Bytes: rapid.Int64Range(0, 1<<40).Draw(t, "bytes"), Flops: number.Draw(t, "flops"), Peak: Peak{Flops: rapid.Float64Range(1, 1e12).Draw(t, "peak")},
				Seconds: rapid.SliceOfN(rapid.Float64Range(1e-9, 1e6), 1, 4).Draw(t, "seconds"),
			})
		}
		var b bytes.Buffer
		require.NoError(t, WriteResults(&b, []*Report{r}))
		got, err := ReadResults(&b)
		require.NoError(t, err)
		require.Equal(t, r.Rows, got[0].Rows)
		require.Equal(t, asText(t, r), asText(t, got[0]))
	})
}
