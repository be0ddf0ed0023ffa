package data

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestWindows: the file is tokenised as a whole and cut; the windows hold
// every token once.
func TestWindows(t *testing.T) {
	d, err := load(t, "t.txt", "abcdefg", Options{MaxLength: 3, Tokenizer: byteTokenizer{bos: true}})
	require.NoError(t, err)
	first := []int32{bos, 'a', 'b'}
	assert.Equal(t, []Row{
		{first, first}, {idsOf("cde"), idsOf("cde")}, {idsOf("fg", eos), idsOf("fg", eos)},
	}, rowsOf(d))

	d, err = load(t, "t.txt", "abcdef", Options{MaxLength: 3})
	require.NoError(t, err)
	assert.Equal(t, 2, d.Len())
	assert.Equal(t, 1, d.Stats().Empty, "a last window of one token predicts nothing")

	_, err = load(t, "t.txt", "abc", Options{})
	require.ErrorIs(t, err, ErrOption)
	assert.ErrorContains(t, err, "t.txt: max_length: found none, expected the length of the windows")
}

func TestDocuments(t *testing.T) {
	texts := func(d *Dataset) (out []string) {
		for _, r := range rowsOf(d) {
			var b []byte
			for _, id := range r.IDs[:len(r.IDs)-1] {
				b = append(b, byte(id))
			}
			assert.Equal(t, int32(eos), r.IDs[len(r.IDs)-1])
			out = append(out, string(b))
		}
		return out
	}
	d, err := load(t, "t.txt", "\n\nab\ncd\r\n\r\n  \nef\n\n\ngh\n", Options{DocumentSeparator: BlankLine})
	require.NoError(t, err)
	assert.Equal(t, []string{"ab\ncd", "ef", "gh"}, texts(d))

	d, err = load(t, "t.txt", "ab<|>c\nd<|> <|>e", Options{DocumentSeparator: "<|>"})
	require.NoError(t, err)
	assert.Equal(t, []string{"ab", "c\nd", "e"}, texts(d))

	_, err = load(t, "t.txt", "ab\n\ncdefg\n", Options{DocumentSeparator: BlankLine, MaxLength: 4, OnTooLong: RefuseLong})
	require.ErrorIs(t, err, ErrTooLong)
	assert.ErrorContains(t, err, "t.txt:3: 6 tokens, expected at most max_length 4")
}

func TestTextErrors(t *testing.T) {
	_, err := load(t, "t.txt", "a\nb\xff", Options{MaxLength: 4})
	require.ErrorIs(t, err, ErrUTF8)
	assert.ErrorContains(t, err, "t.txt:2: byte 4 of the file is not UTF-8")

	_, err = load(t, "t.txt", " \n", Options{MaxLength: 4})
	require.ErrorIs(t, err, ErrEmpty)

	_, err = Load(t.Context(), []string{write(t, "t.txt", "ab")}, Options{MaxLength: 4})
	require.ErrorIs(t, err, ErrOption)
	assert.ErrorContains(t, err, "t.txt: plain text needs a tokenizer")
}

// TestSplit: splitting at a separator equals strings.Split without blank documents, and line numbers refer to the file.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab\n|]{0,30}`).Draw(t, "text")
		separator := rapid.SampledFrom([]string{"|", "||", "a\n"}).Draw(t, "separator")
		var want, got []string
		for _, part := range strings.Split(text, separator) {
			if strings.TrimSpace(part) != "" {
				want = append(want, part)
			}
		}
		lines := strings.Split(text, "\n")
		for d := range split(text, separator) {
			got = append(got, d.text)
			firstLine, _, _ := strings.Cut(d.text, "\n")
			assert.Contains(t, lines[d.line-1], firstLine)
		}
		require.Equal(t, want, got)

		got = slices.Collect(func(yield func(string) bool) {
			for d := range split(text, BlankLine) {
				yield(d.text)
			}
		})
		assert.Equal(t, strings.ReplaceAll(text, "\n", ""), strings.ReplaceAll(strings.Join(got, ""), "\n", ""), "no letter is lost")
		for _, doc := range got {
			assert.NotContains(t, doc, "\n\n")
		}
	})
}
