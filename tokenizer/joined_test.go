package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestJoined compares with Hugging Face tokenizers on texts and pairs of them, whole and
// cut to each length at either side; scripts/make_pair_goldens.py made them.
func TestJoined(t *testing.T) {
	var golden struct {
		Texts      [][]string
		Lengths    int
		Tokenizers []struct {
			File      string
			Config    json.RawMessage
			Rows      [][2][]int32
			Checksums []byte
		}
	}
	readJSON(t, filepath.Join(fixtures, "pairs.json"), &golden)
	require.Greater(t, len(golden.Tokenizers), 25)
	for _, g := range golden.Tokenizers {
		t.Run(g.File+string(g.Config), func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("../testdata", g.File))
			require.NoError(t, err)
			require.Len(t, g.Checksums, 2*2*len(golden.Texts)*golden.Lengths)
			for i, side := range []string{"right", "left"} {
				tok, err := Parse(data, g.Config)
				require.NoError(t, err)
				tok.cutLeft = side == "left"
				for j, texts := range golden.Texts {
					ids, types, cut, err := tok.EncodeJoined(texts, math.MaxInt)
					require.NoError(t, err)
					require.False(t, cut)
					require.Equal(t, g.Rows[j], [2][]int32{ids, types}, "%q", texts)
					for length := 1; length <= golden.Lengths; length++ {
						want := binary.LittleEndian.Uint16(g.Checksums[2*((i*len(golden.Texts)+j)*golden.Lengths+length-1):])
						short, types, cut, err := tok.EncodeJoined(texts, length)
						if want == 0 {
							require.ErrorIs(t, err, ErrRoom)
							continue
						}
						require.NoError(t, err)
						require.Equal(t, want, joinedChecksum(short, types), "%q cut to %d at the %s: %v, %v", texts, length, side, short, types)
						require.Equal(t, len(ids) > length, cut)
					}
				}
			}
		})
	}
}

func joinedChecksum(ids, types []int32) uint16 {
	list := func(x []int32) string { return strings.ReplaceAll(strings.Trim(fmt.Sprint(x), "[]"), " ", ",") }
	return uint16(crc32.ChecksumIEEE([]byte(list(ids) + "\n" + list(types))))
}

func TestJoinedErrors(t *testing.T) {
	tok, err := Parse([]byte(withinJSON), nil)
	require.NoError(t, err)
	for _, c := range []struct {
		texts []string
		most  int
		is    error
		text  string
	}{
		{[]string{"a", "b"}, 9, ErrFormat, "TemplateProcessing without a pair"},
		{nil, 9, nil, "found 0 texts to join, expected 1 or 2"},
		{[]string{"a", "b", "c"}, 9, nil, "found 3 texts to join"},
		{[]string{"a"}, 1, ErrRoom, "found 1 tokens, expected at least the 2 that stand around and between texts"},
		{[]string{"\xff"}, 9, ErrInvalidUTF8, "byte 0"},
	} {
		_, _, _, err := tok.EncodeJoined(c.texts, c.most)
		require.ErrorContains(t, err, c.text)
		if c.is != nil {
			require.ErrorIs(t, err, c.is)
		}
	}
	const chain = `{"post_processor": {"type": "Sequence", "processors": [{"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}],
"pair": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "a"}}, {"Sequence": {"id": "B"}}], "special_tokens": {"a": {"ids": [0]}}},
{"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}], "pair": [{"Sequence": {"id": "B"}}]}]},` + tinyModel + `}`
	tok, err = Parse([]byte(chain), nil)
	require.NoError(t, err, "single texts have one piece all the way")
	_, _, _, err = tok.EncodeJoined([]string{"a", "b"}, 9)
	require.ErrorIs(t, err, ErrFormat)
	require.ErrorContains(t, err, "makes 3 pieces")
}

func TestTemplateRefusals(t *testing.T) {
	for template, want := range map[string]struct {
		is    error
		names string
	}{
		`"single":[],"pair":[{"SpecialToken":{"id":"x"}}]`:                     {ErrFormat, `"x" has no ids`},
		`"single":[{"Sequence":{"id":"B"}}]`:                                   {ErrFormat, "a part of single is neither SpecialToken nor Sequence A"},
		`"single":[],"pair":[{"Sequence":{"id":"C"}}]`:                         {ErrFormat, "a part of pair is neither SpecialToken nor Sequence A or B"},
		`"single":[],"pair":[{"Sequence":{"id":"B"}},{"Sequence":{"id":"B"}}]`: {ErrUnsupported, `pair with two of Sequence "B"`},
		`"single":[{"Sequence":{"id":"A","type_id":-1}}]`:                      {ErrFormat, "type_id -1 in single"},
		`"single":[{"Sequence":{"id":"A","type_id":4294967295}}]`:              {ErrFormat, "type_id"},
		`"single":[{"Sequence":{"id":"A"}}],"pair":[{"Sequence":"A"}]`:         {ErrFormat, "post_processor TemplateProcessing"},
	} {
		_, err := Parse([]byte(`{"post_processor":{"type":"TemplateProcessing",`+template+`},`+tinyModel+`}`), nil)
		if assert.ErrorIs(t, err, want.is, template) {
			assert.ErrorContains(t, err, want.names, template)
		}
	}
}

// TestUntyped: a model that is not given the types of tokens sees but one.
func TestUntyped(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(fixtures, "families", "bert_cased.json"))
	require.NoError(t, err)
	for config, want := range map[string]int32{
		`"model_input_names": ["input_ids", "token_type_ids"]`:                                         1,
		`"model_input_names": ["input_ids", "attention_mask"]`:                                         0,
		`"model_input_names": null`:                                                                    1,
		`"tokenizer_class": "BertTokenizerFast"`:                                                       1,
		`"tokenizer_class": "TokenizersBackend"`:                                                       0,
		`"tokenizer_class": "PreTrainedTokenizerFast"`:                                                 0,
		`"tokenizer_class": "TokenizersBackend", "model_input_names": ["input_ids", "token_type_ids"]`: 1,
	} {
		tok, err := Parse(data, []byte("{"+config+"}"))
		require.NoError(t, err)
		ids, types, _, err := tok.EncodeJoined([]string{"a", "b"}, 20)
		require.NoError(t, err)
		require.Len(t, types, len(ids))
		assert.Equal(t, want, types[len(types)-1], config)
		assert.Zero(t, types[0])
	}
}

// TestJoinedWithin: whatever the post-processor, no result is longer than asked for, and
// each token has a type.
func TestJoinedWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		post := rapid.Custom(drawProcessor).Draw(t, "post")
		tok, err := Parse([]byte(`{"post_processor":`+post+`,`+tinyModel+`}`), []byte(`{"truncation_side":"`+rapid.SampledFrom([]string{"left", "right"}).Draw(t, "side")+`"}`))
		if err != nil {
			return
		}
		texts := rapid.SliceOfN(rapid.StringMatching(`[ab]{0,9}`), 1, 2).Draw(t, "texts")
		whole, _, _, err := tok.EncodeJoined(texts, math.MaxInt)
		if err != nil {
			return
		}
		if len(texts) == 1 {
			ids, err := tok.Encode(texts[0], true)
			require.NoError(t, err)
			require.Equal(t, ids, whole)
		}
		for most := range len(whole) + 2 {
			ids, types, cut, err := tok.EncodeJoined(texts, most)
			if err != nil {
				require.ErrorIs(t, err, ErrRoom)
				continue
			}
			require.LessOrEqual(t, len(ids), most)
			require.Len(t, types, len(ids))
			if !cut {
				require.Equal(t, whole, ids)
			}
		}
	})
}

// drawProcessor makes post-processors, of which the rules refuse some.
func drawProcessor(t *rapid.T) string {
	id := rapid.Int32Range(0, 2)
	switch kind := rapid.SampledFrom([]string{"ByteLevel", "BertProcessing", "RobertaProcessing", "TemplateProcessing", "TemplateProcessing", "Sequence"}).Draw(t, "kind"); kind {
	case "ByteLevel":
		return `{"type":"ByteLevel"}`
	case "Sequence":
		return `{"type":"Sequence","processors":[` + strings.Join(rapid.SliceOfN(rapid.Custom(drawProcessor), 0, 3).Draw(t, "processors"), ",") + `]}`
	case "TemplateProcessing":
		draw := func(sequences ...string) string {
			var parts []string
			for _, s := range slices.Concat(sequences, rapid.SliceOfN(rapid.SampledFrom([]string{"A", "B", "x", "y"}), 0, 3).Draw(t, "parts")) {
				what := "Sequence"
				if s == "x" || s == "y" {
					what = "SpecialToken"
				}
				parts = append(parts, fmt.Sprintf(`{%q:{"id":%q,"type_id":%d}}`, what, s, id.Draw(t, "type")))
			}
			return strings.Join(rapid.Permutation(parts).Draw(t, "order"), ",")
		}
		return fmt.Sprintf(`{"type":%q,"single":[%s],"pair":[%s],"special_tokens":{"x":{"ids":[0]},"y":{"ids":[1,2]}}}`, kind, draw("A"), draw("A", "B"))
	default:
		return fmt.Sprintf(`{"type":%q,"cls":["a",%d],"sep":["b",%d]}`, kind, id.Draw(t, "cls"), id.Draw(t, "sep"))
	}
}
