package tokenizer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const withinJSON = `{"model": {"type": "WordPiece", "unk_token": "?", "vocab": {"?": 0, "<": 1, ">": 2, "a": 3, "b": 4, "c": 5, "A": 6}},
"pre_tokenizer": {"type": "Whitespace"},
"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": ">"}}],
"special_tokens": {"<": {"ids": [1]}, ">": {"ids": [2]}}}}`

// TestEncodeWithin: what stands around a text stays, whatever is cut.
func TestEncodeWithin(t *testing.T) {
	for _, c := range []struct {
		config string
		most   int
		want   []int32
		cut    bool
	}{
		{"", 5, []int32{1, 3, 4, 5, 2}, false},
		{"", 4, []int32{1, 3, 4, 2}, true},
		{"", 2, []int32{1, 2}, true},
		{"", 0, []int32{1, 2}, true},
		{`{"truncation_side": "left"}`, 4, []int32{1, 4, 5, 2}, true},
		{`{"truncation_side": "right"}`, 3, []int32{1, 3, 2}, true},
	} {
		tok, err := Parse([]byte(withinJSON), []byte(c.config))
		require.NoError(t, err)
		require.Equal(t, 2, tok.NumSpecialTokens())
		got, cut, err := tok.EncodeWithin("a b c", c.most)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
		require.Equal(t, c.cut, cut)
	}
	tok, err := Parse([]byte(withinJSON), nil)
	require.NoError(t, err)
	_, _, err = tok.EncodeWithin("\xff", 9)
	require.ErrorIs(t, err, ErrInvalidUTF8)
}

// TestLowercased leaves the tokenizer that it is made of as it is.
func TestLowercased(t *testing.T) {
	for _, normalizer := range []string{"", `"normalizer": {"type": "NFC"},`} {
		tok, err := Parse([]byte(`{`+normalizer+withinJSON[1:]), nil)
		require.NoError(t, err)
		for want, tok := range map[int32]*Tokenizer{6: tok, 3: tok.Lowercased()} {
			ids, err := tok.Encode("A", false)
			require.NoError(t, err)
			require.Equal(t, []int32{want}, ids)
		}
	}
}
