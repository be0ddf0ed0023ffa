package tools_test

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/tools"
)

// TestNesting: arguments that lie too deep in one another are text.
func TestNesting(t *testing.T) {
	nested := func(n int) string {
		return `<tool_call>{"name": "f", "arguments": ` + strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) + `}</tool_call>`
	}
	o := tools.Options{Syntax: tools.Hermes}
	_, calls := read(t, o, nested(127))
	require.Len(t, calls, 1)
	text, calls := read(t, o, nested(128))
	require.Empty(t, calls)
	require.Equal(t, nested(128), text)
}

// TestLongCalls: a call of more than a mebibyte is text, however it comes, and what
// follows is read again.
func TestLongCalls(t *testing.T) {
	long := func(n int) string {
		call := `<tool_call>{"name": "f", "arguments": {"a": ""}}`
		return strings.Replace(call, `""`, `"`+strings.Repeat("x", n-len(call))+`"`, 1)
	}
	for _, size := range []int{1 << 20, 1<<20 + 1} {
		answer := long(size) + `</tool_call> <tool_call>{"name": "g"}</tool_call>`
		for _, cut := range []int{len(answer), 1000} {
			var pieces []string
			for rest := answer; rest != ""; {
				n := min(cut, len(rest))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			text, calls := read(t, tools.Options{Syntax: tools.Hermes}, pieces...)
			if size == 1<<20 {
				require.Equal(t, "⟨0⟩⟨1⟩", text)
				continue
			}
			require.Len(t, calls, 1, cut)
			require.True(t, text == long(size)+"</tool_call>⟨0⟩", cut)
		}
	}
	// Forced calls are passed on as they come, and have no bound.
	_, calls := read(t, tools.Options{Forced: true}, `[{"name":"f","arguments":{"a":"`, strings.Repeat("y", 3<<20), `"}}]`)
	require.Len(t, calls, 1)
	require.Len(t, calls[0].arguments, 3<<20+8)
}

// TestManyBeginnings: what looks like a call again and again is not read again without
// end. The test is of the count of steps: it would not end in its time otherwise.
func TestManyBeginnings(t *testing.T) {
	for syntax, part := range map[tools.Syntax]string{
		tools.Hermes:   `<tool_call>{"name":"`,
		tools.Qwen:     `<function=f><parameter=a></parameter>`,
		tools.Llama:    `<|python_tag|>{"name":"`,
		tools.Mistral:  `[TOOL_CALLS][{"name":"`,
		tools.DeepSeek: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"",
	} {
		answer := strings.Repeat(part, 1<<20/len(part))
		text, _ := read(t, tools.Options{Syntax: syntax}, answer)
		require.True(t, text == answer, syntax)
	}
}

func TestIDs(t *testing.T) {
	for syntax, form := range map[tools.Syntax]string{tools.Hermes: `^call_[0-9A-Za-z]{24}$`, tools.Mistral: `^[0-9A-Za-z]{9}$`} {
		answer := map[tools.Syntax]string{tools.Hermes: `<tool_call>{"name": "f"}`, tools.Mistral: `[TOOL_CALLS]f{}`}[syntax]
		id := func(o tools.Options) string {
			o.Syntax = syntax
			p := tools.New(o)
			return p.Push(answer)[0].ID
		}
		seeded := func() tools.Options { return tools.Options{Rand: rand.NewChaCha8([32]byte{5})} }
		require.Regexp(t, regexp.MustCompile(form), id(tools.Options{}))
		require.NotEqual(t, id(tools.Options{}), id(tools.Options{}))
		require.Equal(t, id(seeded()), id(seeded()))
		require.Regexp(t, form, id(tools.Options{Rand: strings.NewReader("")}))
	}
}

// FuzzParser: any answer is read without a panic, whatever the pieces; arguments are JSON
// objects, and an answer without calls is passed on whole.
func FuzzParser(f *testing.F) {
	list, rows := goldens(f)
	for i, g := range rows {
		f.Add(uint8(i), false, g.Answer, uint64(i))
	}
	for i, a := range answers {
		f.Add(uint8(i), true, a.answer, uint64(i))
	}
	f.Add(uint8(0), true, `[{"name": "f", "arguments": {"a": 1}}, {"name":"f","arguments":{}}]`, uint64(3))
	all := append(tools.Syntaxes(), tools.None)
	f.Fuzz(func(t *testing.T, syntax uint8, forced bool, answer string, seed uint64) {
		o := tools.Options{Syntax: all[int(syntax)%len(all)], Tools: list, Forced: forced}
		text, calls := read(t, o, answer)
		r := rand.New(rand.NewPCG(seed, 0))
		var pieces []string
		for rest := answer; rest != ""; {
			n := min(len(rest), 1+r.IntN(12))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		cutText, cutCalls := read(t, o, pieces...)
		require.Equal(t, text, cutText)
		require.Equal(t, calls, cutCalls)
		if len(calls) == 0 {
			require.Equal(t, answer, text)
		}
		for _, c := range calls {
			if !forced || json.Valid([]byte(c.arguments)) {
				require.True(t, json.Valid([]byte(c.arguments)), c.arguments)
				require.Equal(t, byte('{'), c.arguments[0])
			}
		}
	})
}
