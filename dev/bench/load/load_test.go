package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// TestMain lets this binary be the programs that Run starts.
func TestMain(m *testing.M) {
	if len(os.Args) < 6 {
		os.Exit(m.Run())
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "ours":
		if err := Measure(os.Stdout, args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "peer": // writes what it is asked to, in no time at all
		if args[2] != "" {
			if err := os.WriteFile(args[2], nil, 0o666); err != nil {
				panic(err)
			}
		}
		fmt.Printf(`{"seconds": [1%s], "peak_rss": 1000}`, strings.Repeat(", 0.5", times(args[3])-1))
	case "broken":
		fmt.Fprintln(os.Stderr, "some words\nthe last word")
		os.Exit(3)
	case "talker":
		fmt.Println("hello")
	case "idler":
		fmt.Println(`{"seconds": []}`)
	}
	os.Exit(0)
}

func times(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// as is the command of this binary in one of its parts.
func as(part string) []string { return []string{os.Args[0], part} }

// small are options that take little time.
func small(t *testing.T) Options {
	return Options{Turns: bench.Turns{Runs: 1}, Self: as("ours"), Dir: t.TempDir(), Size: 1_000_000}
}

// Everything that is measured here and by peers is in the report, and nothing
// stays on the disk.
func TestRun(t *testing.T) {
	o := small(t)
	o.Peers = map[string][]string{plainC: as("peer"), rust: as("peer"), golang: as("peer"), python: as("peer")}
	last := 0
	o.Progress = func(done, total int) {
		require.Equal(t, last+1, done)
		last = done
		require.LessOrEqual(t, done, total)
	}
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, row := range report.Rows {
		assert.Empty(t, row.Failure, row.ID())
		assert.Len(t, row.Seconds, 1, row.ID())
		assert.False(t, seen[row.ID()], "twice: %s", row.ID())
		seen[row.ID()] = true
	}
	want := 0
	for _, s := range specs {
		if s.linux && runtime.GOOS != "linux" {
			continue
		}
		for _, in := range s.inputs {
			want++
			assert.True(t, seen[s.row(in).ID()], s.row(in).ID())
		}
	}
	assert.Len(t, report.Rows, want)
	assert.Equal(t, want, last)
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestSpecs(t *testing.T) {
	for _, s := range specs {
		if s.own() {
			assert.Contains(t, operations, s.op)
		} else {
			assert.Contains(t, peers, s.program)
		}
	}
}

func TestOnly(t *testing.T) {
	o := small(t)
	o.Runs, o.Only = 3, regexp.MustCompile(`^Header: .*FromBytes, 1,000`)
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, report.Rows, 1)
	row := report.Rows[0]
	assert.Len(t, row.Seconds, 3)
	assert.Greater(t, row.Bytes, int64(100_000))
	assert.Less(t, row.Bytes, int64(120_000), "the header alone")
}

// The first time of several in a process warms up; one alone counts.
func TestFigure(t *testing.T) {
	assert.Equal(t, 9.0, (&spec{}).figure([]float64{9}))
	assert.Equal(t, 2.0, (&spec{}).figure([]float64{9, 3, 1, 2}))
}

func TestPeerFails(t *testing.T) {
	for part, says := range map[string]string{"broken": "exit status 3: the last word", "talker": "invalid character", "idler": "answered 0 times"} {
		o := small(t)
		o.Runs, o.Peers = 2, map[string][]string{rust: as(part)}
		o.Only = regexp.MustCompile(`^Header: .* FromBytes, 1,000|resident: rust`)
		report, err := Run(t.Context(), o)
		require.NoError(t, err)
		require.Len(t, report.Rows, 3)
		assert.Empty(t, report.Rows[0].Failure)
		for _, row := range report.Rows[1:] {
			assert.Contains(t, row.Failure, says)
			assert.Contains(t, row.Failure, "touch")
			assert.Empty(t, row.Seconds)
		}
	}
}

func TestOursFails(t *testing.T) {
	o := small(t)
	o.Self = as("broken")
	report, err := Run(t.Context(), o)
	assert.ErrorContains(t, err, "the last word")
	assert.Empty(t, report.Rows)
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestInterrupted(t *testing.T) {
	o := small(t)
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(done, _ int) {
		if done == 3 {
			cancel()
		}
	}
	report, err := Run(ctx, o)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Len(t, report.Rows, 3, "what has been measured is not lost")
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestBadOptions(t *testing.T) {
	for says, change := range map[string]func(*Options){
		"found 0 runs":        func(o *Options) { o.Runs = 0 },
		"a size of 199999":    func(o *Options) { o.Size = MinSize - 1 },
		"a size of -1":        func(o *Options) { o.Size = -1 },
		`no row matches "x$"`: func(o *Options) { o.Only = regexp.MustCompile("x$") },
	} {
		o := small(t)
		change(&o)
		_, err := Run(t.Context(), o)
		assert.ErrorIs(t, err, bench.ErrOptions)
		assert.ErrorContains(t, err, says)
	}
	o := small(t)
	o.Dir = filepath.Join(o.Dir, "missing")
	_, err := Run(t.Context(), o)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestReadPeers(t *testing.T) {
	dir := t.TempDir()
	_, err := ReadPeers(dir)
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "build.sh")
	for text, says := range map[string]string{
		"{":                "unexpected end",
		`{"c": "x"}`:       "cannot unmarshal",
		`{"cobol": ["x"]}`: `found a program "cobol", expected some of c, rust, go, python`,
		`{"c": []}`:        "c has no command",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, PeersFile), []byte(text), 0o666))
		_, err := ReadPeers(dir)
		assert.ErrorContains(t, err, says)
		assert.ErrorContains(t, err, PeersFile)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, PeersFile), []byte(`{"c": ["a", "b"]}`), 0o666))
	got, err := ReadPeers(dir)
	require.NoError(t, err)
	assert.Equal(t, map[string][]string{plainC: {"a", "b"}}, got)
}

// measureHere does an operation in this process.
func measureHere(t *testing.T, op, file, out string) Answer {
	var b bytes.Buffer
	require.NoError(t, Measure(&b, []string{op, file, out, "2"}))
	var a Answer
	require.NoError(t, json.Unmarshal(b.Bytes(), &a))
	require.Len(t, a.Seconds, 2)
	for _, s := range a.Seconds {
		assert.Positive(t, s)
	}
	return a
}

// What is timed must be done.
func TestOperations(t *testing.T) {
	dir := t.TempDir()
	s := files{dir: dir, size: 1_000_000}
	base, err := s.open(baseFile)
	require.NoError(t, err)
	want, err := os.ReadFile(base.path)
	require.NoError(t, err)
	for _, op := range []string{"save", "save_durable", "write"} {
		out := filepath.Join(dir, op)
		measureHere(t, op, base.path, out)
		got, err := os.ReadFile(out)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, got), op)
	}
}

func TestMeasureRefuses(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for says, args := range map[string][]string{
		"expected OP FILE OUT REPEAT":      {"open", "x"},
		`operation "opn", expected one of`: {"opn", "x", "", "1"},
		`"no" times, expected 1 or more`:   {"open", "x", "", "no"},
		`"0" times`:                        {"open", "x", "", "0"},
	} {
		assert.ErrorContains(t, Measure(nil, args), says)
	}
	for op, o := range operations {
		if o == nil || op == "map_populate" && runtime.GOOS != "linux" {
			continue
		}
		assert.ErrorIs(t, Measure(nil, []string{op, missing, filepath.Join(t.TempDir(), "out"), "1"}), os.ErrNotExist, op)
	}
}
