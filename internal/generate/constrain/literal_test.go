package constrain_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
)

// A grammar of a regular expression has the texts that Go's regexp matches as a whole.
func TestRegex(t *testing.T) {
	vocab := vocabulary(t)
	grammars := map[string]*constrain.Grammar{}
	for _, pattern := range []string{`a`, `a|bc`, `^a|b$`, `(a|b)*c?`, `\d{2,3}-[a-cö]+`, `[^a]b`, `a*`, `"\n\\`, `(ö|🐢){2}`} {
		g, err := constrain.Regex(pattern)
		require.NoError(t, err, pattern)
		grammars[pattern] = g
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SampledFrom([]string{`a`, `a|bc`, `^a|b$`, `(a|b)*c?`, `\d{2,3}-[a-cö]+`, `[^a]b`, `a*`, `"\n\\`, `(ö|🐢){2}`}).Draw(t, "pattern")
		text := rapid.StringOfN(rapid.SampledFrom([]rune("aabbc12-ö🐢\n\\\"")), 0, 6, -1).Draw(t, "text")
		whole := regexp.MustCompile(`\A(?:` + pattern + `)\z`)
		g := grammars[pattern]
		m, err := g.Matcher(vocab)
		if err != nil {
			t.Fatal(err)
		}
		ok := true
		for i := range len(text) {
			if ok = m.Accept(int32(text[i])) == nil; !ok {
				break
			}
		}
		if got := ok && m.Done(); got != whole.MatchString(text) {
			t.Fatalf("%q of %s: %t", text, pattern, got)
		}
	})
	for pattern, want := range map[string]error{
		`a)|(b`: constrain.ErrPattern, `\bword`: constrain.ErrPattern, `(a|a)*b(.*a.{20})`: constrain.ErrTooLarge, `(((a{999}){999}){999}){999}`: constrain.ErrTooLarge,
		``: constrain.ErrEmpty, `^$`: constrain.ErrEmpty, `[^\s\S]`: constrain.ErrEmpty,
	} {
		_, err := constrain.Regex(pattern)
		assert.ErrorIs(t, err, want, pattern)
	}
}

func TestChoice(t *testing.T) {
	g, err := constrain.Choice([]string{"yes", "yes, or \"no\"", "ö", "yes"})
	require.NoError(t, err)
	for text, want := range map[string]bool{"yes": true, "ye": false, "yes, or \"no\"": true, "yes ": false, "ö": true, "o": false, "": false} {
		assert.Equal(t, want, accepts(t, g, text), text)
	}
	_, err = constrain.Choice([]string{""})
	assert.ErrorIs(t, err, constrain.ErrEmpty)
}

// FuzzRegex: an invalid expression is an error of this package, and a valid one has a text.
func FuzzRegex(f *testing.F) {
	for _, pattern := range []string{`^a|b$`, `[^\d\]]{2,}?(?:x|y)*`, `\u00e9\x41\cA`, `(((a{99}){99}){99})`, `.*a.{20}`, `a)|(b`, `\p{L}+`, `[`, `{`, `(?!a)`} {
		f.Add(pattern)
	}
	v, err := constrain.NewVocabulary(tokens())
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, pattern string) {
		g, err := constrain.Regex(pattern)
		if err != nil {
			return
		}
		m, err := g.Matcher(v)
		require.NoError(t, err)
		mask := make([]uint64, 4)
		m.Mask(mask)
		require.NotEqual(t, []uint64{0, 0, 0, 0}, mask)
	})
}
