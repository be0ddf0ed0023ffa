// Package tools reads the calls of tools out of what a model writes, as OpenAI's chat API
// has them, and says how a request's tools are to be written down for a model.
//
// A model writes calls in the [Syntax] that its chat template taught it. A [Parser] takes
// the answer as it comes and parts it into text and calls. A call is passed on when it is
// whole, so that one that goes wrong is text again, to the last byte; of answers that are
// kept to the schema of [Forced], which cannot go wrong, arguments are passed on as they
// are written.
package tools

import (
	"slices"
	"strings"
)

// Syntax is how a model writes calls, by the name that vLLM has for it.
type Syntax string

// The syntaxes.
const (
	None     Syntax = ""            // none: all is text
	Hermes   Syntax = "hermes"      // <tool_call>{"name": …, "arguments": {…}}</tool_call>, also Qwen 2.5 and 3
	Qwen     Syntax = "qwen3_coder" // <tool_call><function=name><parameter=key>value</parameter></function></tool_call>
	Llama    Syntax = "llama3_json" // {"name": …, "parameters": {…}}, as the whole answer or behind <|python_tag|>
	Mistral  Syntax = "mistral"     // [TOOL_CALLS] [{"name": …, "arguments": {…}}], or [TOOL_CALLS]name[ARGS]{…}
	DeepSeek Syntax = "deepseek_v3" // <｜tool▁call▁begin｜>function<｜tool▁sep｜>name and the arguments as a block of JSON
)

// Syntaxes are all that calls can be written in.
func Syntaxes() []Syntax { return []Syntax{Hermes, Qwen, Llama, Mistral, DeepSeek} }

// Detect finds the syntax that a chat template, in its source, teaches; None where it is
// none of those that are known.
func Detect(template string) Syntax {
	has := func(marks ...string) bool {
		return !slices.ContainsFunc(marks, func(m string) bool { return !strings.Contains(template, m) })
	}
	switch {
	case has("[TOOL_CALLS]"):
		return Mistral
	case has("<tool_call>", "<function=", "<parameter="):
		return Qwen
	case has(deepSeekCall, deepSeekName, "```json"):
		return DeepSeek
	case has("<tool_call>", "</tool_call>") && (has(`"arguments": `) || has(`\"arguments\": `)) && !has("<tool_calls>"):
		return Hermes
	case has(`"parameters": `, `{"name": "`, "<|eot_id|>"):
		return Llama
	}
	return None
}

// Special are the tokens that mark calls and are special in tokenizers of such models:
// a decoder that leaves special tokens out has to keep these.
func (s Syntax) Special() []string { return slices.Clone(s.form().special) }

// form is what a parser has to know of a syntax.
type form struct {
	marks   []mark
	ends    []string // they may stand behind a call, and are passed over
	bare    bool     // an answer that begins with { may be a call
	special []string
	ids     idStyle
}

// mark begins calls, which are read from behind it.
type mark struct {
	text  string
	begin state
}

const (
	toolCall = "<tool_call>"
	toolEnd  = "</tool_call>"
	function = "<function="

	deepSeekCall = "<｜tool▁call▁begin｜>"
	deepSeekName = "<｜tool▁sep｜>"
)

func (s Syntax) form() form {
	switch s {
	case Hermes:
		return form{marks: []mark{{toolCall, (*Parser).tagged}}, ends: []string{toolEnd}, special: []string{toolCall, toolEnd}}
	case Qwen: // its models tend to forget <tool_call>
		return form{
			marks: []mark{{toolCall, (*Parser).tagged}, {function, (*Parser).function}},
			ends:  []string{toolEnd}, special: []string{toolCall, toolEnd},
		}
	case Llama:
		return form{marks: []mark{{"<|python_tag|>", (*Parser).bareObject}}, bare: true, special: []string{"<|python_tag|>"}}
	case Mistral:
		return form{
			marks:   []mark{{"[TOOL_CALLS]", (*Parser).mistral}},
			special: []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}, ids: nineCharacters,
		}
	case DeepSeek:
		const begin, end, callEnd = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>"
		return form{
			marks: []mark{{begin, (*Parser).deepSeek}, {deepSeekCall, (*Parser).deepSeekType}},
			ends:  []string{"```", callEnd, end}, special: []string{begin, end, deepSeekCall, callEnd, deepSeekName},
		}
	}
	return form{}
}
