// Package tools parses the tool calls in a model's output into the form of OpenAI's chat API, and
// renders a request's tools for a model.
//
// A model writes calls in the [Syntax] that its chat template taught it. A [Parser] reads the
// answer as a stream and splits it into text and calls. A call is emitted when it is complete, so a
// malformed call becomes text again, byte for byte. Answers that are constrained to the schema of
// [Forced] cannot be malformed, so their arguments are streamed.
package tools

import (
	"slices"
	"strings"
)

// Syntax is a format of tool calls, named as in vLLM.
type Syntax string

// The syntaxes.
const (
	None     Syntax = ""            // no calls: all output is text
	Hermes   Syntax = "hermes"      // <tool_call>{"name": …, "arguments": {…}}</tool_call>, also Qwen 2.5 and 3
	Qwen     Syntax = "qwen3_coder" // <tool_call><function=name><parameter=key>value</parameter></function></tool_call>
	Llama    Syntax = "llama3_json" // {"name": …, "parameters": {…}}, as the whole answer or after <|python_tag|>
	Mistral  Syntax = "mistral"     // [TOOL_CALLS] [{"name": …, "arguments": {…}}], or [TOOL_CALLS]name[ARGS]{…}
	DeepSeek Syntax = "deepseek_v3" // <｜tool▁call▁begin｜>function<｜tool▁sep｜>name and the arguments as a block of JSON
)

// Syntaxes returns all supported syntaxes.
func Syntaxes() []Syntax { return []Syntax{Hermes, Qwen, Llama, Mistral, DeepSeek} }

// Detect returns the syntax that the source of a chat template teaches, or None if it is none of
// the supported ones.
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

// Special returns the special tokens that mark calls in tokenizers of such models. A decoder that
// skips special tokens must keep these.
func (s Syntax) Special() []string { return slices.Clone(s.form().special) }

// form describes a syntax to a parser.
type form struct {
	openers []opener
	ends    []string // optional strings after a call, which are skipped
	bare    bool     // an answer that starts with { may be a call
	special []string
	ids     idStyle
}

// opener is a string that begins a call.
type opener struct {
	text       string
	startState state
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
		return form{openers: []opener{{toolCall, (*Parser).tagged}}, ends: []string{toolEnd}, special: []string{toolCall, toolEnd}}
	case Qwen: // its models often omit <tool_call>
		return form{
			openers: []opener{{toolCall, (*Parser).tagged}, {function, (*Parser).function}},
			ends:    []string{toolEnd}, special: []string{toolCall, toolEnd},
		}
	case Llama:
		return form{openers: []opener{{"<|python_tag|>", (*Parser).bareObject}}, bare: true, special: []string{"<|python_tag|>"}}
	case Mistral:
		return form{
			openers: []opener{{"[TOOL_CALLS]", (*Parser).mistral}},
			special: []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}, ids: nineCharacters,
		}
	case DeepSeek:
		const begin, end, callEnd = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>"
		return form{
			openers: []opener{{begin, (*Parser).deepSeek}, {deepSeekCall, (*Parser).deepSeekType}},
			ends:    []string{"```", callEnd, end}, special: []string{begin, end, deepSeekCall, callEnd, deepSeekName},
		}
	}
	return form{}
}
