package automaton

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func budget() *Budget { return NewBudget(1 << 17) }

// Patterns match the same strings as Go's regexp package, if both have the same meaning.
func TestPattern(t *testing.T) {
	atom := rapid.SampledFrom([]string{"a", "b", "é", "[ab]", "[^a]", "[a-cé-ü]", `\d`, `[\w-]`, `\.`, "(?:ab|c)", "(a|b|)", "(?:(a*)*)", `\u0062`, "^", "$"})
	times := rapid.SampledFrom([]string{"", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"})
	letters := rapid.SampledFrom([]rune("aabbcé_-.1\nü漢😀\\\""))
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for range rapid.IntRange(0, 5).Draw(t, "atoms") {
			a := atom.Draw(t, "atom")
			b.WriteString(a)
			if a != "^" && a != "$" {
				b.WriteString(times.Draw(t, "times"))
			}
			if rapid.IntRange(0, 5).Draw(t, "or") == 0 {
				b.WriteByte('|')
			}
		}
		pattern := b.String()
		c, err := Pattern(budget(), pattern)
		require.NoError(t, err, pattern)
		want := regexp.MustCompile(strings.ReplaceAll(pattern, `\u0062`, "b"))
		d, err := Quoted(budget(), c)
		require.NoError(t, err)
		for range 8 {
			s := string(rapid.SliceOfN(letters, 0, 8).Draw(t, "text"))
			require.Equal(t, want.MatchString(s), c.Match(s), "%q in %q", pattern, s)
			require.Equal(t, want.MatchString(s), d.Match(spelled(s)), "%q in %s", pattern, spelled(s))
		}
	})
}

// ^ and $ match the start and end of the whole string, at any position of a pattern.
func TestAnchors(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"^a", []string{"a", "ab"}, []string{"", "ba"}}, {"a$", []string{"a", "ba"}, []string{"", "ab"}}, {"x^a", nil, []string{"xa", "a"}}, {"a$x", nil, []string{"ax", "a"}},
		{"^$", []string{""}, []string{"a"}}, {"a|^b", []string{"xa", "b"}, []string{"xb"}}, {"(?:^|,)a(?:$|;)", []string{"a", "a;x", "x,a"}, []string{"xa", "ab"}},
		{"^a|b$", []string{"ax", "xb"}, []string{"xa", "bx"}}, {"(?:^a)*b", []string{"ab", "b", "xb"}, []string{"a"}}, {"", []string{"", "a"}, nil}, {"^[]*$", []string{""}, []string{"a"}},
	} {
		d, err := Pattern(budget(), c.pattern)
		require.NoError(t, err, c.pattern)
		for _, s := range c.yes {
			assert.True(t, d.Match(s), "%q in %q", c.pattern, s)
		}
		for _, s := range c.no {
			assert.False(t, d.Match(s), "%q in %q", c.pattern, s)
		}
	}
}

// spelled returns a string as Quoted writes it.
func spelled(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return err.Error()
	}
	return strings.NewReplacer("\n", "", `\u2028`, "\u2028", `\u2029`, "\u2029").Replace(b.String())
}

// Invalid UTF-8 is never accepted in a string, even without constraints on its characters.
func TestQuotedIsUTF8(t *testing.T) {
	some, err := Pattern(budget(), "^[^a-z]*$")
	require.NoError(t, err)
	for _, c := range []*Chars{Any(), some} {
		d, err := Quoted(budget(), c)
		require.NoError(t, err)
		bytes := rapid.SampledFrom([]byte("\x7f\x80\x81\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xed\xef\xf0\xf1\xf4\xf5A"))
		rapid.Check(t, func(t *rapid.T) {
			s := string(rapid.SliceOfN(bytes, 0, 5).Draw(t, "bytes"))
			require.Equal(t, utf8.ValidString(s), d.Match(`"`+s+`"`), "%q", s)
		})
	}
}

func TestPatternRefuses(t *testing.T) {
	for pattern, want := range map[string]string{
		"(?=a)": "look-around", "(?!a)": "look-around", "(?<=a)": "look-around", "(?<!a)": "look-around", `(a)\1`: "back-references",
		`(?<x>a)\k<x>`: "back-references", `\bword`: "border of a word", `\p{L}`: "classes of Unicode", "(a": "expected )", "a)": "unexpected", "[a": "expected ]",
		"*": "nothing to repeat", "a**": "nothing to repeat", "a{2,1}": "ends before", "a{9999}": "at most 1000", `\uD800`: "surrogate", "[z-a]": "ends before",
		`[\d-z]`: "range from or to a class", `\`: "backslash at the end", `\q`: "unknown escape", "(?i)a": "kind of group", "^*": "nothing to repeat",
		strings.Repeat("(", 200): "groups in one another", `\01`: "octal", `\x1`: "hexadecimal", `\u{110000}`: "not a character", "\xff": "UTF-8",
	} {
		_, err := Pattern(budget(), pattern)
		require.ErrorIs(t, err, ErrPattern, pattern)
		assert.ErrorContains(t, err, want, pattern)
	}
	for _, pattern := range []string{"((a{1000}){1000}){1000}", "a.{1000}b", "(x+x+)+y{500}.{900}"} {
		_, err := Pattern(NewBudget(1<<12), pattern)
		require.ErrorIs(t, err, ErrTooLarge, pattern)
	}
}

func TestProducts(t *testing.T) {
	words := rapid.SliceOfN(rapid.StringMatching(`[ab\x{e9}]{0,3}`), 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		some := words.Draw(t, "some")
		low := rapid.IntRange(0, 3).Draw(t, "low")
		high := rapid.IntRange(-1, 4).Draw(t, "high")
		set, err := Words(budget(), some)
		require.NoError(t, err)
		lengths, err := Length(budget(), low, high)
		require.NoError(t, err)
		both, err := Both(budget(), set, lengths)
		require.NoError(t, err)
		rest, err := Except(budget(), lengths, set)
		require.NoError(t, err)
		for range 10 {
			s := rapid.StringMatching(`[ab\x{e9}c]{0,4}`).Draw(t, "text")
			inSet := false
			for _, w := range some {
				inSet = inSet || w == s
			}
			n := utf8.RuneCountInString(s)
			fits := n >= low && (high < 0 || n <= high)
			require.Equal(t, inSet, set.Match(s))
			require.Equal(t, fits, lengths.Match(s))
			require.Equal(t, inSet && fits, both.Match(s))
			require.Equal(t, fits && !inSet, rest.Match(s), "%q without %q", s, some)
		}
	})
}

// A string is matched if and only if it is JSON with paired surrogates.
func TestString(t *testing.T) {
	d := String()
	require.Less(t, d.States(), 30)
	for text, ok := range map[string]bool{
		`"\ud83d\ude00"`: true, `"\ud83d\udbff"`: false, `"\udbff\udfff"`: true, `"\udc00"`: false, `"\ud83d"`: false, `"\ud83dx"`: false, `"\ud83d\n"`: false, `"\ud7ff\ue000"`: true,
	} {
		assert.Equal(t, ok, d.Match(text), text)
	}
	parts := rapid.SampledFrom([]string{"a", `\n`, `\"`, `\/`, `\u00e9`, `\ud83d\ude00`, `\uD83D`, `\ude00`, `\uDFFF`, `\udbff`, `\uDC00`, "é", "😀", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x1f", "\"", `\x`, `\u12`, "\u2028", "\x7f", "\xef\xbf\xbd"})
	rapid.Check(t, func(t *rapid.T) {
		s := `"` + strings.Join(rapid.SliceOfN(parts, 0, 4).Draw(t, "parts"), "") + `"`
		var value string
		ok := json.Unmarshal([]byte(s), &value) == nil && utf8.ValidString(s) && !strings.Contains(strings.ReplaceAll(s, "\xef\xbf\xbd", ""), "\ufffd") &&
			strings.Count(value, "\ufffd") == strings.Count(s, "\ufffd")
		require.Equal(t, ok, d.Match(s), "%q", s)
	})
}

// Numbers are matched if and only if they are in range, by rational arithmetic.
func TestNumber(t *testing.T) {
	decimal := rapid.StringMatching(`-?(0|[1-9][0-9]{0,2})(\.[0-9]{1,3})?`)
	rapid.Check(t, func(t *rapid.T) {
		n := Numbers{Integer: rapid.Bool().Draw(t, "integer")}
		bound := func(name string) *Bound {
			if !rapid.Bool().Draw(t, name) {
				return nil
			}
			d, err := ParseDecimal(decimal.Draw(t, name) + rapid.SampledFrom([]string{"", "", "e1", "E-1", "e+2"}).Draw(t, "exponent"))
			require.NoError(t, err)
			return &Bound{d, rapid.Bool().Draw(t, name+" exclusive")}
		}
		n.Min, n.Max = bound("min"), bound("max")
		if rapid.IntRange(0, 2).Draw(t, "multiple") == 0 {
			n.Multiple, _ = new(big.Rat).SetString(rapid.SampledFrom([]string{"1", "3", "7", "0.5", "0.25", "0.1", "2.5", "10", "1.2"}).Draw(t, "of"))
		}
		d, err := Number(budget(), n)
		require.NoError(t, err)
		for range 12 {
			text := decimal.Draw(t, "text")
			if rapid.IntRange(0, 3).Draw(t, "at the bound") == 0 && n.Min != nil {
				text = n.Min.String()
			}
			v, _ := new(big.Rat).SetString(text)
			ok := !(n.Integer && strings.Contains(text, ".")) && !(v.Sign() == 0 && strings.HasPrefix(text, "-"))
			if n.Min != nil {
				c := v.Cmp(n.Min.Rat())
				ok = ok && (c > 0 || c == 0 && !n.Min.Exclusive)
			}
			if n.Max != nil {
				c := v.Cmp(n.Max.Rat())
				ok = ok && (c < 0 || c == 0 && !n.Max.Exclusive)
			}
			if n.Multiple != nil {
				ok = ok && new(big.Rat).Quo(v, n.Multiple).IsInt()
				if _, part, found := strings.Cut(text, "."); ok && found && strings.HasSuffix(part, "0") {
					continue // more places than multiples have are left out
				}
			}
			require.Equal(t, ok, d.Match(text), "%s in %v", text, n)
		}
	})
	d, err := Number(budget(), Numbers{})
	require.NoError(t, err)
	for text, ok := range map[string]bool{
		"0": true, "-0": false, "1e5": true, "1.5E-07": true, "1e100": false, "01": false, "1.": false, ".5": false, "1e": false, "-": false, "-0.0": false, "-0.5e+1": true,
		strings.Repeat("9", 20): true, strings.Repeat("9", 21): false, "0." + strings.Repeat("1", 20): true, "0." + strings.Repeat("1", 21): false, "": false,
	} {
		assert.Equal(t, ok, d.Match(text), text)
		if ok {
			_, err := strconv.ParseFloat(text, 64)
			assert.NoError(t, err)
		}
	}
}

func TestDecimal(t *testing.T) {
	for text, want := range map[string]string{"0": "0", "-0.0": "0", "1.50": "1.5", "-12e-3": "-0.012", "1.25e1": "12.5", "1e3": "1000", "100e-2": "1"} {
		d, err := ParseDecimal(text)
		require.NoError(t, err)
		assert.Equal(t, want, d.String(), text)
	}
	for _, text := range []string{"", "x", "1e99", "1e99999999999999999999", "-", "1e", strings.Repeat("1", 99)} {
		_, err := ParseDecimal(text)
		require.ErrorIs(t, err, ErrNumber, text)
	}
}

func TestTexts(t *testing.T) {
	d, err := Texts(budget(), []Text{{Bytes: `[1,2]`, Spaces: []int{3}}, {Bytes: `"a,b"`}, {Bytes: "null"}})
	require.NoError(t, err)
	for text, ok := range map[string]bool{"[1,2]": true, "[1, 2]": true, "[1,  2]": false, "[ 1,2]": false, `"a,b"`: true, `"a, b"`: false, "null": true, "nul": false, "": false} {
		assert.Equal(t, ok, d.Match(text), text)
	}
}

// If bytes are missing, texts that cannot be ended are found.
func TestLeaves(t *testing.T) {
	d := String()
	var all, ascii [256]bool
	for b := range all {
		all[b], ascii[b] = true, b < 0x80
	}
	assert.True(t, d.Leaves(&all, &all))
	assert.True(t, d.Leaves(&ascii, &ascii))
	assert.False(t, d.Leaves(&all, &ascii), "half a character")
	quote := ascii
	quote['"'] = false
	assert.False(t, d.Leaves(&ascii, &quote))
}
