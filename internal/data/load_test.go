package data

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manyLines writes a file of several blocks.
func manyLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"text": "%d %s"}`+"\n", i, strings.Repeat("x", i%97))
	}
	return b.String()
}

// TestOrdered: the rows have the order of the file, for any number of workers.
func TestOrdered(t *testing.T) {
	const lines = 5000
	var first *Dataset
	for _, workers := range []int{1, 2, 7} {
		d, err := load(t, "t.jsonl", manyLines(lines), Options{Workers: workers})
		require.NoError(t, err)
		require.Equal(t, lines, d.Len())
		for _, r := range []int{0, 1, 1234, lines - 1} {
			text := fmt.Sprintf("%d %s", r, strings.Repeat("x", r%97))
			assert.Equal(t, idsOf(text, eos), d.Row(r).IDs)
		}
		if first == nil {
			first = d
		}
		require.Equal(t, first.Stats(), d.Stats())
		require.Equal(t, first.Digest(), d.Digest())
	}
}

// TestFirstError: of several bad lines the first is reported.
func TestFirstError(t *testing.T) {
	lines := strings.SplitAfter(manyLines(6000), "\n")
	for _, bad := range []int{4000, 4001, 5999} {
		lines[bad] = "bad\n"
	}
	for range 5 {
		_, err := load(t, "t.jsonl", strings.Join(lines, ""), Options{Workers: 4})
		require.ErrorIs(t, err, ErrFormat)
		assert.ErrorContains(t, err, "t.jsonl:4001: not valid JSON")
	}
}

func TestFiles(t *testing.T) {
	a := write(t, "a.jsonl", `{"text": "a"}`)
	b := write(t, "b.txt", "bc")
	d, err := Load(t.Context(), []string{a, b}, Options{Tokenizer: byteTokenizer{}, MaxLength: 8})
	require.NoError(t, err)
	assert.Equal(t, []Row{{idsOf("a", eos), idsOf("a", eos)}, {idsOf("bc", eos), idsOf("bc", eos)}}, rowsOf(d))
	assert.Equal(t, 2, d.Stats().Files)

	d, err = Load(t.Context(), []string{write(t, "a.data", `{"text": "a"}`)}, Options{Tokenizer: byteTokenizer{}, Format: FormatJSONL})
	require.NoError(t, err)
	assert.Equal(t, 1, d.Len())

	_, err = Load(t.Context(), []string{write(t, "a.jsnl", "")}, Options{})
	require.ErrorIs(t, err, ErrFormat)
	assert.ErrorContains(t, err, `a.jsnl: found the ending ".jsnl", expected one of .jsonl, .ndjson, .json, .csv, .tsv, .tab, .parquet, .txt, .text, .md, .safetensors, also with .gz or .zst, did you mean ".jsonl"? (or give the format)`)

	_, err = Load(t.Context(), nil, Options{})
	require.ErrorIs(t, err, ErrEmpty)

	_, err = Load(t.Context(), []string{a + "x"}, Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "a.jsonlx")

	_, err = Load(t.Context(), []string{t.TempDir()}, Options{Format: FormatJSONL, Tokenizer: byteTokenizer{}})
	assert.Error(t, err, "a folder")
}

func TestCancel(t *testing.T) {
	path := write(t, "t.jsonl", manyLines(5000))
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped by the user")
	calls := 0
	_, err := Load(ctx, []string{path}, Options{Tokenizer: byteTokenizer{}, Progress: func(Progress) {
		calls++
		cancel(stop)
	}})
	require.ErrorIs(t, err, stop)
	assert.Equal(t, 1, calls)

	_, err = Load(ctx, []string{path}, Options{Tokenizer: byteTokenizer{}})
	require.ErrorIs(t, err, stop)
}

func TestProgress(t *testing.T) {
	a, b := write(t, "a.jsonl", manyLines(3000)), write(t, "b.txt", "text")
	var last Progress
	d, err := Load(t.Context(), []string{a, b}, Options{Tokenizer: byteTokenizer{}, MaxLength: 200, Progress: func(p Progress) {
		assert.GreaterOrEqual(t, p.Bytes, last.Bytes)
		assert.LessOrEqual(t, p.Bytes, p.Size)
		last = p
	}})
	require.NoError(t, err)
	assert.Equal(t, Progress{File: b, Bytes: last.Size, Size: int64(len(manyLines(3000)) + 4), Rows: d.Len(), Tokens: d.Stats().Tokens}, last)
}
