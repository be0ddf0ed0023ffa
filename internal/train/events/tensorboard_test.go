package events

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func at(seconds float64) func() time.Time {
	return func() time.Time { return time.Unix(0, int64(seconds*1e9)) }
}

// The bytes that TensorBoard's own RecordWriter makes of the same three
// events (tensorboard 2.21, tensorboard.compat.proto.event_pb2).
func TestBytesAreTensorBoards(t *testing.T) {
	want, err := hex.DecodeString("1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110" +
		"0f000000000000006d532b090900002040fc54d94110063a020801b95b5f7e" +
		"33000000000000000ca720560900002040fc54d94110ac022a250a110a0a747261696e2f6c6f7373150000a03f0a100a096576616c2f6c6f73731500002040113df885")
	require.NoError(t, err)
	const now = 1700000000.5
	got := appendFrame(nil, versionEvent(now))
	got = appendFrame(got, startEvent(now, 6))
	got = appendFrame(got, scalarsEvent(now, Record{Step: 300, Scalars: []Scalar{{Loss, 1.25}, {EvalLoss, 2.5}}}))
	assert.Equal(t, want, got)

	r := bytes.NewReader(got)
	var steps []int64
	var kinds []bool
	for range 3 {
		event, _, err := readFrame(r)
		require.NoError(t, err)
		step, scalars, err := parseEvent(event)
		require.NoError(t, err)
		steps, kinds = append(steps, step), append(kinds, scalars)
	}
	assert.Equal(t, []int64{0, 6, 300}, steps)
	assert.Equal(t, []bool{false, false, true}, kinds)
}

// scalarSteps are the steps of all scalars in the folder, in the order in
// which TensorBoard reads them.
func scalarSteps(t *testing.T, dir string) (steps []int64, files int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	require.NoError(t, err)
	sort.Strings(paths)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		r := bytes.NewReader(data)
		for r.Len() > 0 {
			event, _, err := readFrame(r)
			require.NoError(t, err, path)
			step, scalars, err := parseEvent(event)
			require.NoError(t, err)
			if scalars {
				steps = append(steps, step)
			}
		}
	}
	return steps, len(paths)
}

func TestTensorBoardResumes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	run := func(after int64, steps ...int64) *TensorBoard {
		tb, err := openTensorBoard(dir, after, at(1700000000)) // a clock that stands still
		require.NoError(t, err)
		for _, s := range steps {
			require.NoError(t, tb.Write(Record{Step: s, Scalars: []Scalar{{Loss, float64(s)}}}))
		}
		return tb
	}
	require.NoError(t, run(Fresh, 1, 2, 3, 4, 5).Close())
	// Killed inside an event.
	f, err := os.OpenFile(filepath.Join(dir, "events.out.tfevents.1700000000.lorafuse"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Write(appendFrame(nil, scalarsEvent(1, Record{Step: 6}))[:17])
	require.NoError(t, err)
	require.NoError(t, f.Close())

	require.NoError(t, run(3, 4, 5, 6, 7).Close())
	steps, files := scalarSteps(t, dir)
	assert.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7}, steps)
	assert.Equal(t, 2, files)
	require.NoError(t, run(6, 7).Sync())
	steps, files = scalarSteps(t, dir)
	assert.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7}, steps)
	assert.Equal(t, 3, files)
	require.NoError(t, run(2, 3).Close())
	steps, files = scalarSteps(t, dir)
	assert.Equal(t, []int64{1, 2, 3}, steps)
	assert.Equal(t, 2, files, "files without a scalar left go")
	require.NoError(t, run(Fresh, 1).Close())
	steps, _ = scalarSteps(t, dir)
	assert.Equal(t, []int64{1}, steps)
}

func TestOtherProgramsEventsStay(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "events.out.tfevents.1800000000.host.17.0")
	require.NoError(t, os.WriteFile(other, []byte("not ours"), 0o666))
	tb, err := openTensorBoard(dir, Fresh, at(1700000000))
	require.NoError(t, err)
	require.NoError(t, tb.Close())
	data, err := os.ReadFile(other)
	require.NoError(t, err)
	assert.Equal(t, "not ours", string(data))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Equal(t, "events.out.tfevents.1800000001.lorafuse", entries[1].Name(), "behind the other one")

	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	_, err = OpenTensorBoard(file, Fresh)
	assert.Error(t, err)
}

func FuzzEventFile(f *testing.F) {
	good := appendFrame(appendFrame(nil, versionEvent(1)), scalarsEvent(2, Record{Step: 9, Scalars: []Scalar{{Loss, 1}}}))
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add(appendFrame(nil, []byte{0x0a, 0xff}))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(path, data, 0o666))
		end, err := keptEvents(path, 5)
		if err != nil {
			require.ErrorIs(t, err, errEvent)
			return
		}
		require.True(t, end >= 0 && end <= int64(len(data)))
		_, _, _ = parseEvent(data)
	})
}
