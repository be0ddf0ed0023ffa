package tokenizer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

var forms = map[string]unicodeForm{
	"NFC":  {form: norm.NFC, decomposed: norm.NFD, composes: true},
	"NFD":  {form: norm.NFD, decomposed: norm.NFD},
	"NFKC": {form: norm.NFKC, decomposed: norm.NFKD, composes: true, compat: true},
	"NFKD": {form: norm.NFKD, decomposed: norm.NFKD, compat: true},
}

// Where x/text is right, normalizing by the book gives the same.
func TestSlowNormalization(t *testing.T) {
	chars := []rune("aeoAZ ̧̣́̀̈̄がかﾞ゙각가ᄀ\u1161\u11a8fi½①Åञ़\u09c7\u09beｱ\u0345\u1e9b\u0f73")
	for name, form := range forms {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			s := string(rapid.SliceOfN(rapid.SampledFrom(chars), 0, 9).Draw(t, "chars"))
			require.Equal(t, form.form.String(s), form.slowly(s), "%+q", s)
		}))
		for r := rune(0); r < 0x30000; r++ {
			if s := string(r); form.slowly(s) != form.form.String(s) {
				t.Fatalf("%s of %U", name, r)
			}
		}
	}
}

// x/text breaks long sequences of marks by U+034F.
func TestManyMarks(t *testing.T) {
	marks := strings.Repeat("\u0301\u0323", 40)
	got, _ := forms["NFC"].normalize("e" + marks)
	want := "\u1eb9\u0323" // the dots go first, and one of them composes
	assert.Equal(t, want, got[:len(want)])
	assert.NotContains(t, got, "\u034f")
	assert.Equal(t, 1+79, len([]rune(got)))
}

func TestNormalizersKnowTheStart(t *testing.T) {
	for _, c := range []struct {
		json, in, out string
		atStart       bool
	}{
		{`{"type":"Strip","strip_left":true,"strip_right":true}`, " a ", "a", false},
		{`{"type":"Strip","strip_left":true,"strip_right":true}`, "a ", "a", true},
		{`{"type":"StripAccents"}`, "\u0301a", "a", false},
		{`{"type":"StripAccents"}`, "a\u0301", "a", true},
		{`{"type":"Nmt"}`, "\u0001a\tb", "a b", false},
		{`{"type":"Nmt"}`, "a\u0001\u200b", "a ", true},
		{`{"type":"Replace","pattern":{"String":"a"},"content":""}`, "ab", "b", false},
		{`{"type":"Replace","pattern":{"String":"a"},"content":"xx"}`, "ab", "xxb", true},
		{`{"type":"Replace","pattern":{"Regex":" +"},"content":"_"}`, "  b", "_b", false},
		{`{"type":"Replace","pattern":{"String":""},"content":"-"}`, "ab", "-a-b-", true},
		{`{"type":"Prepend","prepend":"_"}`, "", "", true},
		{`{"type":"Sequence","normalizers":[{"type":"Strip","strip_left":true},{"type":"Prepend","prepend":"_"}]}`, " a", "_a", false},
		{`{"type":"Lowercase"}`, "İΣẞ", "i̇σß", true},
		{`{"type":"ByteLevel"}`, "é ", "Ã©Ġ", true},
	} {
		n, err := readNormalizer([]byte(c.json))
		require.NoError(t, err)
		out, atStart := n.normalize(c.in)
		assert.Equal(t, c.out, out, "%s of %q", c.json, c.in)
		assert.Equal(t, c.atStart, atStart, "%s of %q", c.json, c.in)
	}
}

// The scanners are the patterns that they stand for.
func TestScanners(t *testing.T) {
	chars := []rune("ab1 2\n\r\t '!sSdſtTlLvVeErRmM日é\u00a0½٣\u2028.")
	for expr, scan := range scanners {
		delete(scanners, expr)
		p, err := compilePattern("test", expr)
		scanners[expr] = scan
		require.NoError(t, err)
		require.IsType(t, regex{}, p)
		t.Run(fmt.Sprintf("of %d bytes", len(expr)), rapid.MakeCheck(func(t *rapid.T) {
			s := string(rapid.SliceOfN(rapid.SampledFrom(chars), 0, 24).Draw(t, "chars"))
			require.Equal(t, p.spans(s), scan.spans(s), "%q", s)
		}))
	}
}

func TestBehaviors(t *testing.T) {
	for behavior, want := range map[string][]string{
		"Removed":            {"the", "final", "countdown"},
		"Isolated":           {"the", "-", "final", "-", "-", "countdown"},
		"MergedWithPrevious": {"the-", "final-", "-", "countdown"},
		"MergedWithNext":     {"the", "-final", "-", "-countdown"},
		"Contiguous":         {"the", "-", "final", "--", "countdown"},
	} {
		p, err := readPreTokenizer([]byte(`{"type":"Split","pattern":{"String":"-"},"behavior":"` + behavior + `"}`))
		require.NoError(t, err)
		var got []string
		for _, pc := range p.split([]piece{{text: "the-final--countdown", id: noID}}) {
			got = append(got, pc.text)
		}
		assert.Equal(t, want, got, behavior)
	}
}
