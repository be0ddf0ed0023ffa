package chat

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"
)

// FuzzTemplate feeds broken templates; what parses must render without a panic, to valid
// text or a known error, whatever its loops make.
func FuzzTemplate(f *testing.F) {
	for _, source := range []string{
		"{% for m in messages %}{{ '<' + m.role + '>' + m['content'] | trim }}{% endfor %}",
		"{%- set ns = namespace(x=1) -%}{% if ns.x is odd and t %}{{ [1, 'a', {'b': none}][::-1] | tojson(indent=2) }}{% elif x %}{% else %}{% endif %}",
		"{% macro m(a, b=2) %}{{ caller(a) }}{% endmacro %}{% call(x) m(1) %}{{ x ~ '%5.2f|{}'.format(2) % 3 }}{% endcall %}",
		"{% for k, v in {'a': 1}.items() if v recursive %}{{ loop.index }}{% break %}{% endfor %}{% raw %}{{{% endraw %}{# #}",
		"{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | sort | join(', ') | replace('a', 'b') | upper }}",
		"{% filter indent %}{% set x | trim %} a {% endset %}{{ x.split('a', 1)[0] }}{% endfilter %}{% generation %}{{ 7 // 2 ** 3 - -1 % 2.5 }}{% endgeneration %}",
		"{% set ns = namespace(l=[1], s='x') %}{% for i in range(90) %}{% set ns.l = ns.l + ns.l %}{% set ns.s = ns.s ~ ns.s * 3 %}{% endfor %}{{ ns.l == ns }}",
		"{% set ns = namespace(l=[]) %}{% set ns.me = ns %}{% for i in range(90) %}{% set ns.l = [ns.l, (ns.l, ns)] %}{% endfor %}{{ ns }}{{ ns.l | tojson }}{{ ns.l < ns.l }}",
		"{% macro f(n) %}{% for x in range(n) recursive %}{{ f(n - 1) ~ loop([1]) }}{% endfor %}{% endmacro %}{{ f(50) | indent(99999999) | list }}",
	} {
		f.Add(source)
	}
	messages := []Message{{Role: "user", Content: " Hi "}, {Role: "assistant", Content: "há"}}
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 1000 || !utf8.ValidString(source) {
			return
		}
		tmpl, err := New(source, nil)
		if err != nil {
			if !errors.Is(err, ErrTemplate) {
				t.Fatal(err)
			}
			return
		}
		tmpl.limits = limits{steps: 20_000, bytes: 1 << 20} // so that there are many in a second
		text, spans, err := tmpl.RenderSpans(messages, Options{Extra: map[string]any{"t": true, "n": 3}})
		if err != nil {
			if !errors.Is(err, ErrRender) && !errors.Is(err, ErrSpans) {
				t.Fatal(err)
			}
			return
		}
		for _, sp := range spans {
			if sp.Start > sp.End || sp.End > len(text) {
				t.Fatalf("span %v of %d bytes", sp, len(text))
			}
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"role":"user","content":"x","tool_calls":[{"a":1.5e3}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m, again Message
		if json.Unmarshal(data, &m) != nil {
			return
		}
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &again); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	})
}
