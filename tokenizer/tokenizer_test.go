package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func family(t testing.TB, name string) *Tokenizer {
	return load(t, filepath.Join(fixtures, "families", name+".json"))
}

func TestLookups(t *testing.T) {
	tok := family(t, "llama3")
	id, ok := tok.TokenID("<s>")
	require.True(t, ok)
	token, ok := tok.Token(id)
	require.True(t, ok)
	assert.Equal(t, "<s>", token)
	id, ok = tok.TokenID("Ġthe")
	require.True(t, ok)
	token, ok = tok.Token(id)
	require.True(t, ok)
	assert.Equal(t, "Ġthe", token)
	_, ok = tok.TokenID("no such token")
	assert.False(t, ok)
	for _, id := range []int32{-1, int32(tok.VocabSize()), 1 << 30} {
		_, ok = tok.Token(id)
		assert.False(t, ok, "id %d", id)
	}
	assert.Equal(t, 420, tok.VocabSize())
	for _, get := range []func() (int32, bool){tok.BOS, tok.EOS, tok.PAD, tok.UNK} {
		_, ok := get()
		assert.False(t, ok, "no configuration names it")
	}
	tok = load(t, filepath.Join(fixtures, "wordpiece"))
	id, ok = tok.UNK()
	assert.Equal(t, int32(1), id)
	assert.True(t, ok)
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(filepath.Join(dir, "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Load(dir)
	assert.ErrorIs(t, err, os.ErrNotExist, "a folder without tokenizer.json")
	for _, name := range sentencePieceFiles {
		only := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(only, name), nil, 0o644))
		_, err = Load(only)
		assert.ErrorIs(t, err, os.ErrNotExist)
		assert.ErrorContains(t, err, "found only "+name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte("{"), 0o644))
	_, err = Load(dir)
	assert.ErrorIs(t, err, ErrFormat)
	assert.ErrorContains(t, err, dir, "the file is named")
}

const tinyModel = `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}`

func TestRefusals(t *testing.T) {
	for json, want := range map[string]struct {
		is    error
		names string
	}{
		`{}`:                                  {ErrFormat, "model is missing"},
		`{"version":"2.0",` + tinyModel + `}`: {ErrUnsupported, `"2.0"`},
		`{"model":{"type":"Other"}}`:          {ErrUnsupported, `model "Other"; supported are BPE, Unigram`},
		`{"model":{"type":"BPE","vocab":{"a":0}}}`:                                                                  {ErrFormat, "merges is missing"},
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`:                                                 {ErrFormat, `"b" is not in the vocabulary`},
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b c"]}}`:                                               {ErrFormat, `merge 0 is "a b c"`},
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}}`:                                                 {ErrFormat, "merge 0 has 1 parts"},
		`{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`:                                                     {ErrFormat, `"a" has id -1`},
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1}}`:                                        {ErrUnsupported, "dropout"},
		`{"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":1}}`:                                                 {ErrFormat, "unk_id 1 of 1"},
		`{"model":{"type":"Unigram","vocab":[["a","x"]]}}`:                                                          {ErrFormat, "score of token 0"},
		`{"normalizer":{"type":"Odd"},` + tinyModel + `}`:                                                           {ErrUnsupported, `normalizer "Odd"; supported are BertNormalizer`},
		`{"normalizer":{},` + tinyModel + `}`:                                                                       {ErrFormat, "normalizer without a type"},
		`{"normalizer":{"type":"Precompiled","precompiled_charsmap":"AA=="},` + tinyModel + `}`:                     {ErrFormat, "charsmap"},
		`{"pre_tokenizer":{"type":"UnicodeScripts"},` + tinyModel + `}`:                                             {ErrUnsupported, `pre_tokenizer "UnicodeScripts"; supported are BertPreTokenizer`},
		`{"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Odd"}]},` + tinyModel + `}`:                  {ErrUnsupported, `"Odd"`},
		`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a"},"behavior":"Isolated"},` + tinyModel + `}`:       {ErrUnsupported, `"[a"`},
		`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a&&[b]]"},"behavior":"Isolated"},` + tinyModel + `}`: {ErrUnsupported, "&&"},
		`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a[b]]"},"behavior":"Isolated"},` + tinyModel + `}`:   {ErrUnsupported, "class inside a class"},
		`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\h"},"behavior":"Isolated"},` + tinyModel + `}`:      {ErrUnsupported, `\h`},
		`{"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Odd"},` + tinyModel + `}`:            {ErrUnsupported, `"Odd"; supported are Removed`},
		`{"pre_tokenizer":{"type":"Split","pattern":{},"behavior":"Removed"},` + tinyModel + `}`:                    {ErrFormat, "pattern"},
		`{"pre_tokenizer":{"type":"Metaspace","replacement":"ab"},` + tinyModel + `}`:                               {ErrFormat, "not one character"},
		`{"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"odd"},` + tinyModel + `}`:         {ErrUnsupported, `"odd"`},
		`{"pre_tokenizer":{"type":"FixedLength","length":0},` + tinyModel + `}`:                                     {ErrFormat, "length 0"},
		`{"post_processor":{"type":"Odd"},` + tinyModel + `}`:                                                       {ErrUnsupported, `post_processor "Odd"`},
		`{"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}]},` + tinyModel + `}`: {ErrFormat, `"x" has no ids`},
		`{"decoder":{"type":"Odd"},` + tinyModel + `}`:                                                              {ErrUnsupported, `decoder "Odd"; supported are BPEDecoder`},
		`{"decoder":{"type":"Strip","content":"","start":1,"stop":0},` + tinyModel + `}`:                            {ErrFormat, "not one character"},
	} {
		_, err := Parse([]byte(json), nil)
		if assert.ErrorIs(t, err, want.is, json) {
			assert.ErrorContains(t, err, want.names, json)
			assert.NotContains(t, err.Error(), "\n")
		}
	}
	_, err := Parse([]byte(`{`+tinyModel+`}`), []byte(`{"eos_token":5}`))
	assert.ErrorIs(t, err, ErrFormat)
}

func TestBadInput(t *testing.T) {
	tok := family(t, "llama3")
	_, err := tok.Encode("abc\xff", true)
	require.ErrorIs(t, err, ErrInvalidUTF8)
	assert.ErrorContains(t, err, "byte 3")
	_, err = tok.Encode("a\uFFFDb", true)
	assert.NoError(t, err, "U+FFFD is a character")
	_, err = tok.Decode([]int32{5, -100}, true)
	require.ErrorIs(t, err, ErrTokenID)
	assert.ErrorContains(t, err, "-100")
	_, err = tok.NewStream(true).Push(-1)
	assert.ErrorIs(t, err, ErrTokenID)
	text, err := tok.Decode([]int32{1 << 20, 70}, true)
	require.NoError(t, err, "rows of a model without a token")
	assert.Equal(t, "b", text)

	noUnknown, err := Parse([]byte(`{"model":{"type":"WordPiece","unk_token":"?","vocab":{"a":0}}}`), nil)
	require.NoError(t, err)
	_, err = noUnknown.Encode("b", false)
	assert.ErrorIs(t, err, ErrUnknownText)
	noUnknown, err = Parse([]byte(`{"model":{"type":"Unigram","vocab":[["a",0]]}}`), nil)
	require.NoError(t, err)
	_, err = noUnknown.Encode("ab", false)
	assert.ErrorIs(t, err, ErrUnknownText)
	noUnknown, err = Parse([]byte(`{"model":{"type":"BPE","unk_token":"?","vocab":{"a":0},"merges":[]}}`), nil)
	require.NoError(t, err)
	_, err = noUnknown.Encode("ab", false)
	assert.ErrorIs(t, err, ErrUnknownText)
}

// Bytes that have no token leave the whole character unknown; a run of unknown characters is
// one token, before which the bytes of later characters go.
func TestByteFallbackGaps(t *testing.T) {
	tok, err := Parse([]byte(`{"model":{"type":"BPE","byte_fallback":true,"fuse_unk":true,"unk_token":"?",
		"vocab":{"?":0,"a":1,"<0xC3>":2,"<0xA9>":3,"aa":4},"merges":[["a","a"]]}}`), nil)
	require.NoError(t, err)
	for text, want := range map[string][]int32{
		"aa":    {4},
		"é":     {2, 3},
		"è":     {0},       // <0xA8> is missing
		"èê":    {0},       // fused
		"èéê":   {2, 3, 0}, // as the library orders them
		"aèa":   {1, 0, 1},
		"aaéaa": {4, 2, 3, 4},
	} {
		ids, err := tok.Encode(text, false)
		require.NoError(t, err)
		assert.Equal(t, want, ids, text)
	}
}

func TestUnigramPrefersScores(t *testing.T) {
	tok, err := Parse([]byte(`{"model":{"type":"Unigram","unk_id":0,"vocab":
		[["<unk>",0],["a",0],["b",0],["c",0],["d",0],["cd",1],["ab",2],["abc",5],["abcd",10]]}}`), nil)
	require.NoError(t, err)
	ids, err := tok.Encode("abcdacdxxab", false)
	require.NoError(t, err)
	assert.Equal(t, []int32{8, 1, 5, 0, 6}, ids, "unknown characters are one token")
}

// The flags are those of classes that make their own post-processor.
func TestAddBOS(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(fixtures, "families", "gpt2.json"))
	require.NoError(t, err)
	for config, want := range map[string][]int32{
		`{"tokenizer_class":"LlamaTokenizerFast","bos_token":"<s>","eos_token":"</s>","add_bos_token":true}`:                  {1, 69},
		`{"tokenizer_class":"LlamaTokenizer","bos_token":"<s>","eos_token":"</s>","add_bos_token":true,"add_eos_token":true}`: {1, 69, 2},
		`{"tokenizer_class":"GemmaTokenizer","bos_token":"<s>","eos_token":{"content":"</s>"},"add_eos_token":true}`:          {69, 2},
		`{"tokenizer_class":"LlamaTokenizer","add_bos_token":true}`:                                                           {69},
		`{"tokenizer_class":"GPT2TokenizerFast","bos_token":"<s>","add_bos_token":true}`:                                      {69},
	} {
		tok, err := Parse(data, []byte(config))
		require.NoError(t, err)
		ids, err := tok.Encode("a", true)
		require.NoError(t, err)
		assert.Equal(t, want, ids, config)
	}
}

// What streams out is valid at every step, and together what Decode gives.
func TestStreamOfAnyIDs(t *testing.T) {
	for _, name := range []string{"llama3", "llama2", "unigram_bytes", "bert_cased", "behaviors", "ctc", "t5"} {
		tok := family(t, name)
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			ids := rapid.SliceOf(rapid.Int32Range(0, int32(tok.VocabSize())+2)).Draw(t, "ids")
			skip := rapid.Bool().Draw(t, "skip")
			want, err := tok.Decode(ids, skip)
			require.NoError(t, err)
			s, got := tok.NewStream(skip), ""
			for range 2 { // a flushed stream begins anew
				got = ""
				for _, id := range ids {
					part, err := s.Push(id)
					require.NoError(t, err)
					require.True(t, utf8.ValidString(part), "%q", part)
					got += part
				}
				got += s.Flush()
			}
			require.Equal(t, want, got)
		}))
	}
}

func TestByteLevelRoundTrip(t *testing.T) {
	tok := family(t, "gpt2")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		ids, err := tok.Encode(text, false)
		require.NoError(t, err)
		got, err := tok.Decode(ids, false)
		require.NoError(t, err)
		require.Equal(t, text, got)
	})
}

func TestMergesAgree(t *testing.T) {
	m := family(t, "llama3").model.(*bpe)
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, 419), 1, 48).Draw(t, "ids")
		short, long := append([]int32(nil), ids...), append([]int32(nil), ids...)
		short, long = short[:m.mergeShort(short)], long[:m.mergeLong(long)]
		require.Equal(t, short, long)
	})
}

func TestConcurrentUse(t *testing.T) {
	tok := family(t, "llama3")
	text := strings.Repeat("Hello the world of 日本 and others 123 ", 20)
	want, err := family(t, "llama3").Encode(text, true)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				ids, err := tok.Encode(text, true)
				assert.NoError(t, err)
				assert.Equal(t, want, ids)
				_, err = tok.Decode(ids, true)
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
}

func TestCacheIsBounded(t *testing.T) {
	c := newWordCache()
	for i := range cacheShards * cacheShardWords * 2 {
		c.add(strings.Repeat("x", i%60)+string(rune('a'+i%26))+string(rune(0x4E00+i%20000)), []int32{int32(i)})
	}
	for i := range c.shards {
		assert.LessOrEqual(t, len(c.shards[i].words), cacheShardWords)
	}
	long := strings.Repeat("x", cacheWordBytes+1)
	c.add(long, []int32{1})
	_, ok := c.get(nil, long)
	assert.False(t, ok)
}

// Older models keep the names of their special tokens in a file of its own.
func TestSpecialTokensMap(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join(fixtures, "families", "gpt2.json"))
	require.NoError(t, err)
	for name, content := range map[string]string{
		"tokenizer.json":          string(data),
		"tokenizer_config.json":   `{"model_max_length":5}`,
		"special_tokens_map.json": `{"eos_token":{"content":"</s>","normalized":true},"bos_token":"<s>","additional_special_tokens":["<x>"]}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	tok := load(t, dir)
	eos, ok := tok.EOS()
	assert.True(t, ok)
	assert.Equal(t, int32(2), eos)
	ids, err := tok.Encode("a<x>", false)
	require.NoError(t, err)
	assert.Equal(t, []int32{69, 420}, ids)
}
