package data

import (
	"encoding/json"
	"fmt"
)

// alpaca rows are an instruction, an optional input to it, and the answer (Stanford Alpaca; with other names Dolly). As
// in LLaMA-Factory the user's message is the instruction, a line feed and the input; system and history, a list of
// earlier questions with their answers, are optional.
var alpaca = layout{
	kind: "alpaca",
	columns: []column{
		{names: []string{"system", "system_prompt"}, optional: true}, {names: []string{"history"}, optional: true},
		{names: []string{"instruction"}}, {names: []string{"input", "context"}, optional: true}, {names: []string{"output", "response"}},
	},
	arrow: "→", content: true,
	parse: func(c columns) (record, error) {
		input, err := c.optional(3)
		if err != nil {
			return record{}, err
		}
		instruction, err := c.text(2)
		if err != nil {
			return record{}, err
		}
		if input != "" {
			instruction += "\n" + input
		}
		var earlier [][2]string
		if c.has(1) {
			if earlier, err = historyOf(c.values[1]); err != nil {
				return record{}, err
			}
		}
		return c.asked(0, earlier, instruction, 4)
	},
}

// historyOf parses pairs of questions and answers.
func historyOf(raw json.RawMessage) ([][2]string, error) {
	var pairs [][]json.RawMessage
	if err := json.Unmarshal(unquoted(raw), &pairs); err != nil {
		return nil, problem(ErrFormat, "history: found %s, expected an array of pairs of question and answer", describe(raw))
	}
	var all [][2]string
	for i, pair := range pairs {
		if len(pair) != 2 {
			return nil, problem(ErrFormat, "history[%d]: found an array of %d, expected question and answer", i, len(pair))
		}
		var texts [2]string
		for j, value := range pair {
			text, err := textValue(fmt.Sprintf("history[%d][%d]", i, j), value)
			if err != nil {
				return nil, err
			}
			texts[j] = text
		}
		all = append(all, texts)
	}
	return all, nil
}

// asked returns a conversation of earlier questions and answers, a question, and its answer in a column.
func (c columns) asked(system int, earlier [][2]string, question string, answer int) (record, error) {
	text, err := c.text(answer)
	if err != nil {
		return record{}, err
	}
	instruction, err := c.optional(system)
	if err != nil {
		return record{}, err
	}
	var m []turn
	if instruction != "" {
		m = append(m, turn{Role: "system", Content: instruction})
	}
	for _, pair := range append(earlier, [2]string{question, text}) {
		m = append(m, turn{Role: "user", Content: pair[0]}, turn{Role: "assistant", Content: pair[1]})
	}
	return record{conversation: Conversation{Messages: encodeTurns(m)}}, nil
}

// turn is a message of a conversation that was given in another form.
type turn struct {
	Role    string          `json:"role"`
	Content string          `json:"content"`
	Calls   json.RawMessage `json:"tool_calls,omitempty"`
}

// encodeTurns returns messages as JSON.
func encodeTurns(m []turn) json.RawMessage {
	raw, err := json.Marshal(m)
	if err != nil { // which valid JSON never causes
		panic(err)
	}
	return raw
}

// unquoted returns the JSON in a text, or raw if it is no text.
func unquoted(raw json.RawMessage) json.RawMessage {
	var text string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &text) != nil || !json.Valid([]byte(text)) {
		return raw
	}
	return json.RawMessage(text)
}
