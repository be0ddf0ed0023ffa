package tokenizer

import (
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// FuzzParse feeds broken files; what loads must encode and decode without a panic.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"ctc", "behaviors", "t5"} {
		data, err := os.ReadFile(filepath.Join(fixtures, "families", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, []byte(`{"eos_token":"</s>","added_tokens_decoder":{"3":{"content":"x"}}}`))
	}
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
