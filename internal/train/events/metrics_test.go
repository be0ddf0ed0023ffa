package events_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/train/events"
)

func record(step int64, loss float64) events.Record {
	return events.Record{Step: step, Scalars: []events.Scalar{{Name: events.Loss, Value: loss}, {Name: "learning_rate", Value: 1e-5 * float64(step)}}}
}

func write(t *testing.T, path string, after int64, steps ...int64) {
	t.Helper()
	m, err := events.OpenMetrics(path, after)
	require.NoError(t, err)
	for _, s := range steps {
		require.NoError(t, m.Write(record(s, 3/float64(s))))
	}
	require.NoError(t, m.Sync())
	require.NoError(t, m.Close())
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	write(t, path, events.Fresh, 1, 2, 3)
	assert.Equal(t, `{"step":1,"loss":3,"learning_rate":0.00001}
{"step":2,"loss":1.5,"learning_rate":0.00002}
{"step":3,"loss":1,"learning_rate":0.000030000000000000004}
`, read(t, path))
	records, err := events.ReadMetrics(path)
	require.NoError(t, err)
	assert.Equal(t, []events.Record{record(1, 3), record(2, 1.5), record(3, 1)}, records)
	loss, ok := records[1].Value("loss")
	assert.True(t, ok)
	assert.Equal(t, 1.5, loss)
	_, ok = records[1].Value("eval_loss")
	assert.False(t, ok)

	write(t, path, events.Fresh, 1)
	assert.Equal(t, "{\"step\":1,\"loss\":3,\"learning_rate\":0.00001}\n", read(t, path), "a fresh run starts empty")
}

// A run killed anywhere, even inside a line, and resumed from a checkpoint
// leaves the log of the unbroken run.
func TestResumedEqualsUnbroken(t *testing.T) {
	dir := t.TempDir()
	unbroken := filepath.Join(dir, "unbroken")
	all := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	write(t, unbroken, events.Fresh, all...)
	want := read(t, unbroken)
	at4 := len(`{"step":1,"loss":3,"learning_rate":0.00001}` + "\n" + `{"step":2,"loss":1.5,"learning_rate":0.00002}` + "\n" +
		`{"step":3,"loss":1,"learning_rate":0.000030000000000000004}` + "\n" + `{"step":4,"loss":0.75,"learning_rate":0.00004}` + "\n")
	path := filepath.Join(dir, "killed")
	for cut := at4; cut <= len(want); cut++ { // the checkpoint of step 4 is there
		require.NoError(t, os.WriteFile(path, []byte(want[:cut]), 0o666))
		write(t, path, 4, all[4:]...)
		require.Equal(t, want, read(t, path), "cut at %d", cut)
	}
	require.NoError(t, os.Remove(path))
	write(t, path, 9, 10)
	assert.Equal(t, want[len(want)-len(read(t, path)):], read(t, path), "a log that is missing begins anew")
}

func TestUnfinishedLineIsNotThereYet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"step":1,"loss":2}`+"\n"+`{"step":2,"lo`), 0o666))
	records, err := events.ReadMetrics(path)
	require.NoError(t, err)
	assert.Equal(t, []events.Record{{Step: 1, Scalars: []events.Scalar{{Name: "loss", Value: 2}}}}, records)
}

func TestBadMetrics(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "metrics.jsonl")
	for line, want := range map[string]string{
		`{"step":1,"loss":tru`:           "invalid character",
		`[1]`:                            "not a JSON object",
		`{"loss":1}`:                     "no step",
		`{"step":1.5}`:                   "step is 1.5, expected one integer",
		`{"step":1,"step":2}`:            "expected one integer",
		`{"step":"1"}`:                   "expected one integer",
		`{"step":1,"loss":"x"}`:          `"loss" is x, expected a number`,
		`{"step":1,"loss":null}`:         "expected a number",
		`{"step":1,"loss":{"a":1}}`:      "expected a number",
		`{"step":1,"loss":1e999}`:        "expected a number",
		`{"step":9223372036854775808}`:   "expected one integer",
		`{"step":1,"loss":1} {"step":2}`: "after top-level value",
		``:                               "unexpected end",
	} {
		require.NoError(t, os.WriteFile(path, []byte(`{"step":0}`+"\n"+line+"\n"), 0o666))
		_, err := events.ReadMetrics(path)
		assert.ErrorIs(t, err, events.ErrRecord, line)
		assert.ErrorContains(t, err, path+":2: ", line)
		assert.ErrorContains(t, err, want, line)
		before := read(t, path)
		_, err = events.OpenMetrics(path, 5)
		assert.ErrorIs(t, err, events.ErrRecord, "a damaged log is not cut")
		assert.Equal(t, before, read(t, path))
	}
	_, err := events.ReadMetrics(filepath.Join(dir, "missing"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = events.OpenMetrics(filepath.Join(dir, "no", "folder"), events.Fresh)
	assert.ErrorIs(t, err, os.ErrNotExist)

	m, err := events.OpenMetrics(path, events.Fresh)
	require.NoError(t, err)
	defer m.Close()
	for _, bad := range []events.Record{
		{Scalars: []events.Scalar{{Name: "step"}}},
		{Scalars: []events.Scalar{{Name: ""}}},
		{Scalars: []events.Scalar{{Name: "a"}, {Name: "a"}}},
	} {
		assert.ErrorIs(t, m.Write(bad), events.ErrRecord)
	}
	assert.Empty(t, read(t, path), "nothing half-written")
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := events.Record{Step: rapid.Int64().Draw(t, "step")}
		for _, name := range rapid.SliceOfDistinct(rapid.StringMatching(`[a-rt-z_"\\é]{1,9}`), rapid.ID[string]).Draw(t, "names") {
			r.Scalars = append(r.Scalars, events.Scalar{Name: name, Value: rapid.Float64().Draw(t, "value")})
		}
		r.Scalars = append(r.Scalars, events.Scalar{Name: "x1", Value: math.Inf(1)}, events.Scalar{Name: "x2", Value: math.Inf(-1)})
		text, err := json.Marshal(r)
		require.NoError(t, err)
		var back events.Record
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, r, back)
	})
	text, err := json.Marshal(events.Record{Scalars: []events.Scalar{{Name: "loss", Value: math.NaN()}}})
	require.NoError(t, err)
	assert.Equal(t, `{"step":0,"loss":"NaN"}`, string(text))
	var back events.Record
	require.NoError(t, json.Unmarshal(text, &back))
	loss, _ := back.Value("loss")
	assert.True(t, math.IsNaN(loss))
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"step":3,"loss":1.25,"x":"NaN"}`))
	f.Add([]byte(`{"step":3,"loss":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r events.Record
		if json.Unmarshal(text, &r) != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			require.ErrorIs(t, err, events.ErrRecord) // names that are empty or twice there
			return
		}
		var back events.Record
		require.NoError(t, json.Unmarshal(again, &back))
		require.Equal(t, fmt.Sprint(r), fmt.Sprint(back))
	})
}

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "metrics.jsonl")

	run := func(after int64, steps ...int64) {
		m, err := events.OpenMetrics(path, after)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer m.Close()
		for _, s := range steps {
			m.Write(events.Record{Step: s, Scalars: []events.Scalar{{Name: events.Loss, Value: 4 / float64(s)}}})
		}
	}
	run(events.Fresh, 1, 2, 3) // killed after step 3; the last checkpoint is of step 2
	run(2, 3, 4)               // resumed
	text, _ := os.ReadFile(path)
	fmt.Print(string(text))
	// Output:
	// {"step":1,"loss":4}
	// {"step":2,"loss":2}
	// {"step":3,"loss":1.3333333333333333}
	// {"step":4,"loss":1}
}
