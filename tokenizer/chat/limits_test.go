package chat

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// grown makes ns.l of what an expression makes of it, again and again, and uses it then.
func grown(first, next, use string) string {
	return "{% set ns = namespace(l=" + first + ") %}\n{% for i in range(90) %}\n{% set ns.l = " + next + " %}\n{% endfor %}\n" + use
}

// greedy are templates that would take all memory, or years.
var greedy = map[string]string{
	"list doubles":            grown("[1]", "ns.l + ns.l", ""),
	"tuple doubles":           grown("(1,)", "ns.l + ns.l", ""),
	"list times int":          grown("[1]", "ns.l * 10", ""),
	"str doubles":             grown("'x'", "ns.l + ns.l", ""),
	"str joined":              grown("'x'", "ns.l ~ ns.l", ""),
	"str times int":           grown("'x'", "ns.l * 10", ""),
	"int times str":           "{{ 1000000000 * 'ab' }}",
	"list in itself, text":    grown("[]", "[ns.l, ns.l]", "{{ ns.l }}"),
	"list in itself, string":  grown("[]", "[ns.l, ns.l]", "{{ ns.l | string }}"),
	"list in itself, join":    grown("[]", "[ns.l, ns.l]", "{{ [ns.l] | join }}"),
	"list in itself, ~":       grown("[]", "[ns.l, ns.l]", "{{ ns.l ~ '' }}"),
	"list in itself, %s":      grown("[]", "[ns.l, ns.l]", "{{ '%s' % [ns.l] }}"),
	"list in itself, {}":      grown("[]", "[ns.l, ns.l]", "{{ '{}'.format(ns.l) }}"),
	"list in itself, tojson":  grown("[]", "[ns.l, ns.l]", "{{ ns.l | tojson }}"),
	"list in itself, wrapped": grown("[]", "[ns.l, ns.l]", "{{ {'a': ns.l} | tojson(indent=4) }}"),
	"list in itself, ==":      "{% set a = namespace(l=[]) %}{% set b = namespace(l=[]) %}{% for i in range(90) %}{% set a.l = [a.l, a.l] %}{% set b.l = [b.l, b.l] %}{% endfor %}\n\n\n\n{{ a.l == b.l }}",
	"list in itself, in":      "{% set a = namespace(l=[]) %}{% set b = namespace(l=[]) %}{% for i in range(90) %}{% set a.l = [a.l, a.l] %}{% set b.l = [b.l, b.l] %}{% endfor %}\n\n\n\n{{ a.l in [b.l] }}",
	"list in itself, <":       "{% set a = namespace(l=[]) %}{% set b = namespace(l=[]) %}{% for i in range(90) %}{% set a.l = [a.l, a.l] %}{% set b.l = [b.l, b.l] %}{% endfor %}\n\n\n\n{{ a.l < b.l }}",
	"dict in itself, text":    grown("{}", "{'a': ns.l, 'b': ns.l}", "{{ ns.l }}"),
	"dict in itself, tojson":  grown("{}", "{'a': ns.l, 'b': ns.l}", "{{ ns.l | tojson(sort_keys=true) }}"),
	"tuple as key":            grown("(1,)", "(ns.l, ns.l)", "{{ {ns.l: 1} }}"),
	"tuple as key of get":     grown("(1,)", "(ns.l, ns.l)", "{{ {}.get(ns.l) }}"),
	"tuple unique":            grown("(1,)", "(ns.l, ns.l)", "{{ [ns.l] | unique | list }}"),
	"deep list":               "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}\n{{ ns.l }}",
	"deep list, tojson":       "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}\n{{ ns.l | tojson }}",
	"replace":                 grown("'xx'", "ns.l.replace('x', 'xxxx')", ""),
	"replace of nothing":      grown("'xx'", "ns.l | replace('', ns.l)", ""),
	"join method":             grown("'xx'", "ns.l.join(ns.l)", ""),
	"join filter":             grown("'xx'", "ns.l | join(ns.l)", ""),
	"format":                  grown("'xx'", "'{0}{0}{0}'.format(ns.l)", ""),
	"format filter":           grown("'xx'", "'%s%s' | format(ns.l, ns.l)", ""),
	"percent":                 grown("'xx'", "'%s%s' % (ns.l, ns.l)", ""),
	"indent":                  grown("'x\nx\nx'", "ns.l | indent(1000000, true)", ""),
	"indent by text":          grown("'x\nx'", "ns.l | indent(ns.l, true)", ""),
	"escape":                  grown("'\"'", "(ns.l ~ ns.l) | e", ""),
	"tojson of tojson":        grown("'\"\\\\'", "ns.l | tojson", ""),
	"tojson indented":         grown("[]", "[ns.l]", "{{ ns.l | tojson(indent='x' * 100000000) }}"),
	"separators":              "\n{{ ([1] * 1000) | tojson(separators=('x' * 10000000, ':')) }}",
	"sum":                     "\n{{ ([[1] * 10000] * 10000) | sum(start=[]) }}",
	"sum of text":             "\n{{ (['x' * 10000] * 10000) | sum(start='') }}",
	"sort":                    "\n{{ ([['x' * 1000000]] * 10000) | sort }}",
	"spread":                  "\n{{ dict(**dict([1])) if false else '{}{}'.format(*([1] * 100000000)) }}",
	"empty text":              "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
	"no scope":                "{% macro f(n) %}{{ f(n) if n else '' }}{{ f(n - 1) if n else '' }}{% endmacro %}{{ f(100) }}",
	"two calls":               "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}",
	"endless macro":           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
	"recursive loop":          "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
	"text found again":        "{% set x = 'ab' * 10000000 %}{% for i in range(100000) %}{% if 'ba0' in x %}{% endif %}{% endfor %}",
	"list found again":        "{% set x = [1] * 1000000 %}{% for i in range(100000) %}{% if 2 in x %}{% endif %}{% endfor %}",
	"counted again":           "{% set x = 'ab' * 1000000 %}{% for i in range(100000) %}{% set n = x.count('ba') + x.find('z') + x | length %}{% endfor %}",
	"stripped":                "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% set n = x.strip('b' * 1000000 ~ 'a') %}{% endfor %}",
	"lower":                   "{% set x = 'aσ ' * 1000000 %}{% for i in range(100000) %}{% set n = x | lower %}{% endfor %}",
	"slice of text":           "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% set n = x[1:] %}{% endfor %}",
	"letter of text":          "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% set n = x[1] %}{% endfor %}",
	"long expression":         "{% for i in range(100000) %}{% for j in range(1000) %}{{ 0" + strings.Repeat("+ 1", 1500) + " }}{% endfor %}{% endfor %}",
	"long list":               "{% for i in range(100000) %}{% for j in range(1000) %}{% set x = [" + strings.Repeat("1, ", 1500) + "] %}{% endfor %}{% endfor %}",
	"captured":                "{% set ns = namespace(l='x') %}{% for i in range(90) %}{% set ns.l %}{{ ns.l }}{{ ns.l }}{% endset %}{% endfor %}",
	"map":                     "\n{{ ([1] * 10000000) | map('string') | map('list') | list }}",
	"widths":                  "{% for i in range(100000) %}{% set x = '%1000000d' % 1 %}{% endfor %}",
	"split":                   "\n{{ ('a ' * 50000000).split() | length }}",
	"split at":                "\n{{ ('a ' * 50000000).split(' ') | length }}",
	"lines":                   "\n{{ ('a\n' * 50000000).splitlines() | length }}",
	"letters":                 "\n{{ ('a' * 50000000) | list | length }}",
	"names":                   "{% macro f() %}{{ kwargs | length }}{% endmacro %}{% set ns = namespace(l=[]) %}{% for i in range(20000) %}{% set ns.l = ns.l + [(i | string, i)] %}{% endfor %}{{ f(**dict(ns.l)) }}",
}

// TestGreedyTemplatesEndInAnError: each in little memory, with the line and the
// limit in the error.
func TestGreedyTemplatesEndInAnError(t *testing.T) {
	for name, source := range greedy {
		t.Run(name, func(t *testing.T) {
			tmpl, err := New(source, nil)
			require.NoError(t, err)
			tmpl.limits = limits{steps: 50_000, bytes: 1 << 22} // so that the test is short
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			text, err := tmpl.Render([]Message{{Role: "user", Content: "hi"}}, Options{})
			runtime.ReadMemStats(&after)
			assert.ErrorIs(t, err, ErrLimit)
			assert.ErrorIs(t, err, ErrRender)
			assert.Empty(t, text)
			if err != nil {
				assert.Regexp(t, `(more|deeper) than \d+.* \(template line \d+\)$`, err.Error())
				assert.Less(t, len(err.Error()), 400)
			}
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(300<<20))
		})
	}
}

// TestUsualLimits: as New sets them, for the two that end a process soonest.
func TestUsualLimits(t *testing.T) {
	for _, name := range []string{"list doubles", "list in itself, =="} {
		tmpl, err := New(greedy[name], nil)
		require.NoError(t, err)
		_, err = tmpl.Render(nil, Options{})
		assert.ErrorIs(t, err, ErrLimit)
		assert.ErrorContains(t, err, "more than 268")
	}
}

// TestLimitsGrowWithTheConversation: what a template does to each message is never too much.
func TestLimitsGrowWithTheConversation(t *testing.T) {
	tmpl, err := New("{% set ns = namespace(out='') %}{% for m in messages %}{% set ns.out = ns.out ~ (m.content | trim | replace('a', 'b') | upper) %}{% if '</think>' in m.content %}{% endif %}{% endfor %}{{ ns.out }}", nil)
	require.NoError(t, err)
	tmpl.limits = limits{steps: 100, bytes: 1000}
	messages := make([]Message, 1000)
	for i := range messages {
		messages[i] = Message{Role: "user", Content: strings.Repeat("a", 1000)}
	}
	text, err := tmpl.Render(messages, Options{})
	require.NoError(t, err)
	assert.Equal(t, strings.Repeat("B", 1_000_000), text)
}

// TestNamespaceThatHoldsItself: within itself a namespace is cut short, as Python does.
func TestNamespaceThatHoldsItself(t *testing.T) {
	for source, want := range map[string]string{
		"{{ ns }}":                   "<Namespace {'a': 1, 'me': <Namespace {...}>}>",
		"{{ [ns] | string }}":        "[<Namespace {'a': 1, 'me': <Namespace {...}>}>]",
		"{{ ns.me.me.me.a }}":        "1",
		"{{ ns == ns.me }}":          "True",
		"{{ [ns] == [ns.me] }}":      "True",
		"{{ ns in [ns.me] }}":        "True",
		"{{ ns ~ ns.a }}":            "<Namespace {'a': 1, 'me': <Namespace {...}>}>1",
		"{{ '%s|%s' % (ns, ns.a) }}": "<Namespace {'a': 1, 'me': <Namespace {...}>}>|1",
	} {
		tmpl, err := New("{% set ns = namespace(a=1) %}{% set ns.me = ns %}"+source, nil)
		require.NoError(t, err)
		text, err := tmpl.Render(nil, Options{})
		require.NoError(t, err, source)
		assert.Equal(t, want, text, source)
	}
	tmpl, err := New("{% set ns = namespace() %}{% set ns.l = [{'ns': ns}] %}{{ ns.l }}", nil)
	require.NoError(t, err)
	text, err := tmpl.Render(nil, Options{})
	require.NoError(t, err)
	assert.Equal(t, "[{'ns': <Namespace {'l': [{'ns': <Namespace {...}>}]}>}]", text)
	tmpl, err = New("{% set ns = namespace(a=1) %}\n{% set ns.me = [ns] %}{{ ns.me | tojson }}", nil)
	require.NoError(t, err)
	_, err = tmpl.Render(nil, Options{})
	assert.ErrorContains(t, err, "a namespace cannot be written as JSON (template line 2)")
}

// TestLongSources are refused before anything is made of them.
func TestLongSources(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"text":      {strings.Repeat("x", 2<<20), "2097152 bytes long, expected at most 1048576"},
		"sum":       {"\n{{ 1" + strings.Repeat("+1", 20_000) + " }}", "line 2: more than 2000 operators in one tag"},
		"power":     {"{{ 1" + strings.Repeat("**1", 20_000) + " }}", "line 1: more than 2000 operators"},
		"or":        {"{{ 1" + strings.Repeat(" or 1", 20_000) + " }}", "line 1: more than 2000 operators"},
		"and":       {"{{ 1" + strings.Repeat(" and 1", 20_000) + " }}", "line 1: more than 2000 operators"},
		"names":     {"{{ a" + strings.Repeat(".a", 20_000) + " }}", "line 1: more than 2000 operators"},
		"items":     {"{{ a" + strings.Repeat("[0]", 20_000) + " }}", "line 1: more than 2000 operators"},
		"calls":     {"{{ a" + strings.Repeat("()", 20_000) + " }}", "line 1: more than 2000 operators"},
		"filters":   {"{{ a" + strings.Repeat("|e", 20_000) + " }}", "line 1: more than 2000 operators"},
		"tests":     {"{{ a" + strings.Repeat(" is odd", 20_000) + " }}", "line 1: more than 2000 operators"},
		"if":        {"{{ 1" + strings.Repeat(" if 1", 20_000) + " }}", "line 1: more than 2000 operators"},
		"not":       {"{{ " + strings.Repeat("not ", 20_000) + "1 }}", "line 1: nested deeper than 200"},
		"minus":     {"{{ " + strings.Repeat("-", 20_000) + "1 }}", "line 1: nested deeper than 200"},
		"lists":     {"{{ " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + " }}", "line 1: nested deeper than 200"},
		"dicts":     {"{{ " + strings.Repeat("{1:", 5000) + strings.Repeat("}", 5000) + " }}", "line 1: nested deeper than 200"},
		"brackets":  {"{{ " + strings.Repeat("(", 5000) + strings.Repeat(")", 5000) + " }}", "line 1: nested deeper than 200"},
		"targets":   {"{% for " + strings.Repeat("(", 5000) + strings.Repeat(")", 5000) + " in b %}", "line 1: nested deeper than 200"},
		"elif":      {"{% if 1 %}" + strings.Repeat("{% elif 1 %}", 50_000), "line 1: nested deeper than 200"},
		"loops":     {strings.Repeat("{% for a in b %}", 50_000), "line 1: nested deeper than 200"},
		"else if":   {"{{ 1" + strings.Repeat(" if 1 else 1", 20_000) + " }}", "line 1: nested deeper than 200"},
		"arguments": {"{{ " + strings.Repeat("a(", 5000) + strings.Repeat(")", 5000) + " }}", "line 1: nested deeper than 200"},
	} {
		_, err := New(c.source, nil)
		if assert.ErrorIs(t, err, ErrTemplate, name) {
			assert.ErrorContains(t, err, c.want, name)
		}
	}
	tmpl, err := New("{{ "+strings.Repeat("'a' ", 200_000)+" }}", nil)
	require.NoError(t, err)
	text, err := tmpl.Render(nil, Options{})
	require.NoError(t, err)
	assert.Len(t, text, 200_000)
}

// A rendering ends with its context, and with a text that is too long.
func TestRenderBounds(t *testing.T) {
	x, err := New("{% for i in range(100000) %}{% for j in range(100000) %}{% set x = j %}{% endfor %}{% endfor %}", nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the client has gone"))
	_, err = x.RenderContext(ctx, nil, Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrLimit)

	x, err = New("{% set x %}{{ 'y' * 100 }}{% endset %}{% for m in messages %}{{ m.content }}{% endfor %}", nil)
	require.NoError(t, err)
	messages := []Message{{Role: "user", Content: "12345"}, {Role: "user", Content: "67890"}}
	text, err := x.Render(messages, Options{MaxBytes: 10})
	require.NoError(t, err)
	require.Equal(t, "1234567890", text)
	_, err = x.Render(messages, Options{MaxBytes: 9})
	require.ErrorIs(t, err, ErrTooLong)
	require.ErrorIs(t, err, ErrRender)
}
