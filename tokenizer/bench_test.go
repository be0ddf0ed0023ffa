package tokenizer

import (
	"path/filepath"
	"strings"
	"testing"
)

func BenchmarkEncode(b *testing.B) {
	var texts []string
	readJSON(b, filepath.Join(fixtures, "families", "texts.json"), &texts)
	text := strings.Join(texts, "\n")
	for _, name := range []string{"llama3", "o200k", "llama2", "gemma", "bert_uncased", "t5"} {
		tok := load(b, filepath.Join(fixtures, "families", name+".json"))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tok.Encode(text, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	var texts []string
	readJSON(b, filepath.Join(fixtures, "families", "texts.json"), &texts)
	for _, name := range []string{"llama3", "llama2"} {
		tok := load(b, filepath.Join(fixtures, "families", name+".json"))
		ids, err := tok.Encode(strings.Join(texts, "\n"), false)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tok.Decode(ids, false); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(ids))*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
