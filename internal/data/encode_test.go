package data

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSpans: a text is tokenised as a whole if that preserves its boundaries, and in pieces otherwise.
func TestSpans(t *testing.T) {
	e := func(tok Tokenizer) encoder { return encoder{Options{Tokenizer: tok}} }

	ids, loss, err := e(pairTokenizer{}).spans("aab;bb", []Span{{2, 4}})
	require.NoError(t, err)
	assert.Equal(t, []int32{'a' + 256, 'b', ';', 'b' + 256}, ids, "seams between tokens")
	assert.Equal(t, []Span{{1, 3}}, loss)

	ids, loss, err = e(pairTokenizer{}).spans("abb;", []Span{{2, 4}})
	require.NoError(t, err)
	assert.Equal(t, idsOf("abb;"), ids, "bb straddles the seam: pieces")
	assert.Equal(t, []Span{{2, 4}}, loss)

	ids, loss, err = e(markTokenizer{}).spans("abc", []Span{{1, 2}})
	require.NoError(t, err)
	assert.Equal(t, append([]int32{999}, idsOf("abc")...), ids, "one mark, although each piece would get one")
	assert.Equal(t, []Span{{2, 3}}, loss)

	ids, loss, err = e(byteTokenizer{}).spans("abcd", []Span{{0, 1}, {1, 1}, {3, 4}})
	require.NoError(t, err)
	assert.Equal(t, idsOf("abcd"), ids)
	assert.Equal(t, []Span{{0, 1}, {1, 1}, {3, 4}}, loss)

	for _, bad := range [][]Span{{{2, 1}}, {{0, 9}}, {{2, 3}, {1, 2}}, {{-1, 2}}} {
		_, _, err = e(byteTokenizer{}).spans("abcd", bad)
		assert.ErrorIs(t, err, ErrFormat)
	}
}

func TestTooLong(t *testing.T) {
	line := func(prompt, completion int) string {
		return fmt.Sprintf(`{"prompt": %q, "completion": %q}`+"\n", strings.Repeat("p", prompt), strings.Repeat("c", completion))
	}
	// 2+1+1, 2+3+1 and 2+4+1 tokens: short, exact and long.
	file := line(2, 1) + line(2, 3) + line(2, 4)

	d, err := load(t, "t.jsonl", file, Options{MaxLength: 6})
	require.NoError(t, err)
	assert.Equal(t, Row{idsOf("ppcccc"), masked(2, idsOf("cccc")...)}, d.Row(2), "cut at its end")
	assert.Equal(t, 1, d.Stats().Truncated)
	assert.Equal(t, 3, d.Len())

	d, err = load(t, "t.jsonl", file, Options{MaxLength: 6, OnTooLong: Drop})
	require.NoError(t, err)
	assert.Equal(t, Stats{Files: 1, Rows: 2, Tokens: 10, LossTokens: 6, Longest: 6, Dropped: 1}, d.Stats())

	_, err = load(t, "t.jsonl", file, Options{MaxLength: 6, OnTooLong: RefuseLong})
	require.ErrorIs(t, err, ErrTooLong)
	assert.ErrorContains(t, err, "t.jsonl:3: 7 tokens, expected at most max_length 6")

	_, err = load(t, "t.jsonl", line(6, 2), Options{MaxLength: 6})
	require.ErrorIs(t, err, ErrNoTarget)
	assert.ErrorContains(t, err, "t.jsonl:1: 9 tokens, cut to max_length 6, keep no token of the answer")

	_, err = load(t, "t.jsonl", line(6, 2), Options{MaxLength: 6, OnTooLong: Drop})
	require.ErrorIs(t, err, ErrEmpty)
	assert.ErrorContains(t, err, "all 1 rows were left out: longer than max_length 6")
}

func TestVocabulary(t *testing.T) {
	_, err := load(t, "t.jsonl", `{"text": "az"}`, Options{VocabSize: 'z'})
	require.ErrorIs(t, err, ErrTokenID)
	assert.ErrorContains(t, err, "t.jsonl:1: token id 122, expected 0 to 121")
}

func TestOptionErrors(t *testing.T) {
	for text, o := range map[string]Options{
		`format: found "xml", expected auto, jsonl, json, csv, tsv, parquet, text or tokens`: {Format: "xml"},
		`train_on: found "answers", expected answer or all, did you`:                         {TrainOn: "answers"},
		`on_too_long: found "cut", expected truncate, drop or error`:                         {OnTooLong: "cut"},
		"max_length: found -1": {MaxLength: -1},
		"max_length: found 1,": {MaxLength: 1},
		"workers: found -1":    {Workers: -1},
	} {
		_, err := load(t, "t.jsonl", `{"text": "ab"}`, o)
		require.ErrorIs(t, err, ErrOption)
		assert.ErrorContains(t, err, text)
	}
}
