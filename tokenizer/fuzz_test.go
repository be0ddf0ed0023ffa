package tokenizer

import (
	"testing"
	"unicode/utf8"
)

// FuzzParse feeds broken files; what loads must encode and decode without a panic.
func FuzzParse(f *testing.F) {
	// Small seeds: the fuzzer spends its time on making large ones smaller.
	for _, parts := range []string{
		`"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"BertNormalizer","lowercase":true},{"type":"Replace","pattern":{"Regex":"l+"},"content":"_"}]}`,
		`"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":true},{"type":"Digits"},{"type":"Metaspace","replacement":"_","prepend_scheme":"first"}]}`,
		`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\p{L}+|a*"},"behavior":"MergedWithNext","invert":true}`,
		`"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"a"}},{"Sequence":{"id":"A"}}],"pair":[{"Sequence":{"id":"A"}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{"a":{"ids":[0]}}}`,
		`"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":"a","start":1,"stop":1},{"type":"Replace","pattern":{"String":"bb"},"content":"c"}]}`,
		`"decoder":{"type":"WordPiece","prefix":"##","cleanup":true}`,
	} {
		f.Add([]byte(`{`+parts+`,`+tinyModel+`}`), []byte(`{"eos_token":"a","add_eos_token":true}`))
	}
	f.Add([]byte(`{"model":{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["<unk>",0],["H",-1],["<0x0A>",0]]}}`), []byte(nil))
	f.Add([]byte(`{"post_processor":{"type":"Sequence","processors":[{"type":"BertProcessing","cls":["a",0],"sep":["b",1]},{"type":"RobertaProcessing","cls":["a",0],"sep":["b",1]}]},`+tinyModel+`}`), []byte(`{"truncation_side":"left"}`))
	f.Add([]byte(`{"model":{"type":"WordPiece","unk_token":"a","vocab":{"a":0,"##b":1}}}`), []byte(`{"added_tokens_decoder":{"3":{"content":"x"}}}`))
	f.Add([]byte(`{`+tinyModel+`,"added_tokens":[{"id":5,"content":"b","lstrip":true,"normalized":true}]}`), []byte(nil))
	f.Fuzz(func(t *testing.T, data, config []byte) {
		tok, err := Parse(data, config)
		if err != nil {
			return
		}
		ids, err := tok.Encode("Hello  wörld 日本 ab\n", true)
		if err != nil {
			return
		}
		for _, id := range ids {
			if id < 0 { // a template can name any id
				return
			}
		}
		for _, texts := range [][]string{{"ab b"}, {"ab b", "a 日"}} {
			for most := range 9 {
				if ids, types, _, err := tok.EncodeJoined(texts, most); err == nil && (len(ids) > most || len(types) != len(ids)) {
					t.Fatalf("%q within %d: %v of types %v", texts, most, ids, types)
				}
			}
		}
		if text, err := tok.Decode(ids, false); err != nil || !utf8.ValidString(text) {
			t.Fatalf("decoded %q, %v", text, err)
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add("Hello  world\r\n 日本 \u0301 <s>")
	tok := family(f, "llama3")
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := tok.Encode(text, false)
		if !utf8.ValidString(text) {
			if err == nil {
				t.Fatalf("%q was encoded", text)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := tok.Decode(ids, false)
		if err != nil || got != text {
			t.Fatalf("%q became %q, %v", text, got, err)
		}
	})
}

func FuzzVocabulary(f *testing.F) {
	f.Add([]byte(`{"a": 0, "b</w>": 1, "ab</w>": 2, "<|startoftext|>": 3, "<|endoftext|>": 4}`), []byte("#version: 0.2\na b</w>\n"), []byte(`{"tokenizer_class": "CLIPTokenizer"}`))
	f.Add([]byte(`{"a": 0}`), []byte("a"), []byte(`{"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"7": {"content": "<|endoftext|>"}}}`))
	f.Fuzz(func(t *testing.T, vocabulary, merges, configJSON []byte) {
		c, err := readConfig(configJSON, nil)
		if err != nil {
			return
		}
		for _, r := range classRules {
			raw, err := r.join(vocabulary, merges, c)
			if err != nil {
				continue
			}
			if tok, err := parse(raw, configJSON, nil); err == nil {
				_, _ = tok.Encode("a b ab", true)
			}
		}
	})
}
