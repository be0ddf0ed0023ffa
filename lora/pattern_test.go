package lora

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The results are those of Python 3.11's re.fullmatch.
func TestFullMatchAsPython(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{`a|ab`, "ab", true},
		{`a|b`, "ab", false},
		{`(a|ab)(c|bcd)`, "abcd", true},
		{`.*`, "x.y", true},
		{`\d{1,2}`, "123", false},
		{`a{,2}`, "aa", true},
		{`a{,2}`, "a{,2}", false},
		{`(?P<x>a)(?P=x)`, "aa", true},
		{`(?P<x>a)b\1`, "aba", true},
		{`(?:(a)|b)(?(1)c|d)`, "ac", true},
		{`(?:(a)|b)(?(1)c|d)`, "bc", false},
		{`(?!a).*`, "a.b", false},
		{`.*(?<!gate)_proj`, "up_proj", true},
		{`.*(?<!gate)_proj`, "gate_proj", false},
		{`(?>a+)b`, "aab", true},
		{`(?>a+)ab`, "aab", false},
		{`[]a]+`, "]a", true},
		{`[^]a]+`, "]a", false},
		{`[[:alpha:]]`, "a", false},
		{`[[:alpha:]]`, "h]", true}, // a set of [ : a l p h, then ]
		{`[\]a]+`, "a]", true},
		{`[a-z&&b]+`, "&", true},
		{`\Aab\Z`, "ab", true},
		{`^ab$`, "ab", true},
		{`(?i)AB`, "ab", true},
		{`(?x) a  b`, "ab", true},
		{`(?s:.)\x41`, "\nA", true},
		{`a\.b`, "axb", false},
		{`\(a\)`, "(a)", true},
	} {
		p, err := fullMatch(c.pattern)
		require.NoError(t, err, c.pattern)
		got, err := p.match(c.name)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%s on %s", c.pattern, c.name)
	}
}

func TestPatternErrors(t *testing.T) {
	for _, bad := range []string{`(`, `)`, `a)(b`, `[`, `*`, `a**`, `\`, `\Q.\E`, `\pL`, `\C`, `(?P=x)`, `(?P=x`, `\z2\g`, `(?P<1a>x)(?!y)`, `a{2,1}`, `(?<=a*)b\h`} {
		_, err := fullMatch(bad)
		assert.Error(t, err, bad)
	}
}

func TestPatternOfKeys(t *testing.T) {
	for _, c := range []struct {
		key, name string
		want      bool
	}{
		{"q_proj", "model.q_proj", true},
		{"q_proj", "model.xq_proj", false},
		{"q_proj", "q_proj.x", false},
		{"a|b", "model.b", true},
		{"^model.a", "model.a", true},
		{"^a", "model.a", false},
		{`(?!q)\w`, "model.q", false},
	} {
		p, err := suffixMatch(c.key)
		require.NoError(t, err)
		got, err := p.match(c.name)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, c)
	}
}

// A pattern that backtracks without end is an error, not a program that hangs.
func TestPatternTimeout(t *testing.T) {
	p, err := fullMatch(`(?=(a+)+$)(a|a)*b`)
	require.NoError(t, err)
	p.backtr.MatchTimeout = 50 * time.Millisecond
	_, err = p.match("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac")
	assert.ErrorContains(t, err, "timeout")
}

func FuzzPattern(f *testing.F) {
	f.Add(`.*\.(?!o_proj|down_proj)[a-z]+_proj`, "model.layers.0.q_proj")
	f.Add(`(?P<a>[]x]){,3}\Z`, "]]")
	f.Fuzz(func(t *testing.T, source, name string) {
		for _, compile := range []func(string) (*pattern, error){fullMatch, suffixMatch, savedPattern, layerPattern} {
			p, err := compile(source)
			if err != nil {
				continue
			}
			if p.backtr != nil {
				p.backtr.MatchTimeout = 20 * time.Millisecond
			}
			_, _ = p.match(name)
		}
		if p, err := layerPattern(source); err == nil {
			if p.backtr != nil {
				p.backtr.MatchTimeout = 20 * time.Millisecond
			}
			_, _, _ = p.find(name)
		}
	})
}
