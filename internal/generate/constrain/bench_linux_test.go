package constrain_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/cputime"
	"github.com/lorafuse/lorafuse/internal/generate/constrain"
)

// manyTokens are 128,000 tokens as byte-level models have them: bytes, numbers of up to
// three digits, words with a space before them or without, of many lengths, other
// scripts, and runs of punctuation.
var manyTokens = sync.OnceValue(func() [][]byte {
	const n = 128000
	out, known := tokens(), map[string]bool{}
	add := func(s string) {
		if len(out) < n && len(s) > 1 && !known[s] {
			known[s] = true
			out = append(out, []byte(s))
		}
	}
	for i := range 1000 {
		for _, form := range []string{"%d", "%02d", "%03d"} {
			add(fmt.Sprintf(form, i))
		}
	}
	for i := 2; i < 100; i++ {
		add(strings.Repeat(" ", i))
	}
	r := rand.New(rand.NewPCG(7, 7))
	marks := `"{}[]:,.()-_/\;='<>!?+*&` + "\n"
	for range 4000 {
		var b strings.Builder
		for range 2 + r.IntN(3) {
			b.WriteByte(marks[min(r.IntN(len(marks)), r.IntN(len(marks)))])
		}
		add(b.String())
	}
	syllables := strings.Fields("a e i o u al an ar be ca ce co de di do en er es ex fi fo ge ha he ho in is it ke la le li lo ma me mi mo na ne ni no on or pa pe po pre ra re ri ro sa se si so st ta te th ti to tion tr un ur us ve vi wa we y ing ed ly ment ность ра то не 的 一 是 人 にの é ü")
	for len(out) < n {
		var b strings.Builder
		if r.IntN(2) == 0 {
			b.WriteByte(' ')
		}
		for range 1 + r.IntN(5) {
			b.WriteString(syllables[min(r.IntN(len(syllables)), r.IntN(len(syllables)))])
		}
		word := b.String()
		if r.IntN(4) == 0 {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		add(word)
	}
	return out
})

var benchSchema = []byte(`{"type":"object","properties":{
	"name":{"type":"string","maxLength":40},"age":{"type":"integer","minimum":0,"maximum":150},
	"email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"enum":["red","green","blue"]}},
	"address":{"$ref":"#/$defs/address"},"notes":{"type":"string"},"parent":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},
	"required":["name","age","email","tags","address","notes","parent"],"additionalProperties":false,
	"$defs":{"address":{"type":"object","properties":{"street":{"type":"string"},"zip":{"type":"string","pattern":"^\\d{5}$"},"lat":{"type":"number"}},"required":["street","zip"],"additionalProperties":false}}}`)

const benchText = `{"name": "Ada King of Lovelace", "age": 36, "email": "ada@example.org", "tags": ["red", "blue"], "address": {"street": "12 St James Square, London", "zip": "12345", "lat": 51.5073}, ` +
	`"notes": "She wrote the first algorithm that was meant to be carried out by a machine, and saw that it could do more than numbers.", "parent": {"name": "Annabella", "age": 60, "email": "a@b.org", "tags": [], "address": {"street": "", "zip": "00000"}, "notes": "", "parent": null}}`

// longestFirst cuts a text into the longest tokens.
func longestFirst(t testing.TB, text string) (ids []int32) {
	byText := map[string]int32{}
	for id, b := range manyTokens() {
		byText[string(b)] = int32(id)
	}
	for text != "" {
		n := min(len(text), 40)
		for ; n > 0; n-- {
			if id, ok := byText[text[:n]]; ok {
				ids = append(ids, id)
				break
			}
		}
		require.Positive(t, n)
		text = text[n:]
	}
	return ids
}

// BenchmarkMask measures, in time of a processor, a token of an answer: its mask and
// accepting it, with a vocabulary of 128,000. Cold begins without anything that is
// remembered of the vocabulary; warm has written the same before, in another matcher.
func BenchmarkMask(b *testing.B) {
	for _, c := range []struct {
		name   string
		schema []byte
	}{{"schema", benchSchema}, {"json", []byte(`{"type":"object"}`)}} {
		g, err := constrain.Schema(c.schema)
		require.NoError(b, err)
		ids := longestFirst(b, benchText)
		warm, err := constrain.NewVocabulary(manyTokens())
		require.NoError(b, err)
		mask := make([]uint64, warm.Size()/64)
		write := func(v *constrain.Vocabulary) {
			m, err := g.Matcher(v)
			require.NoError(b, err)
			for _, id := range ids {
				m.Mask(mask)
				if err := m.Accept(id); err != nil {
					b.Fatal(err)
				}
			}
			require.True(b, m.Done())
		}
		write(warm)
		for i, name := range []string{"cold", "warm"} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				v := warm
				least := cputime.Least(b, 1, func(int) {
					if i == 0 {
						v, err = constrain.NewVocabulary(manyTokens())
						require.NoError(b, err)
					}
				}, func(int) { write(v) })
				b.ReportMetric(float64(least[0].Nanoseconds())/1e3/float64(len(ids)), "µs/token")
			})
		}
	}
}

// BenchmarkMake measures, in time of a processor, what is made once for a model, and
// once for a schema.
func BenchmarkMake(b *testing.B) {
	manyTokens()
	for name, run := range map[string]func() error{
		"vocabulary": func() error { _, err := constrain.NewVocabulary(manyTokens()); return err },
		"schema":     func() error { _, err := constrain.Schema(benchSchema); return err },
	} {
		b.Run(name, func(b *testing.B) {
			least := cputime.Least(b, 1, nil, func(int) { require.NoError(b, run()) })
			b.ReportMetric(float64(least[0].Microseconds()), "cpu-µs")
		})
	}
}
