package data

// plainText rows are documents.
var plainText = layout{
	kind: kindText, columns: []column{{names: []string{"text"}}},
	parse: func(c columns) (r record, err error) {
		r.text, err = c.text(0)
		return r, err
	},
}

// completions are prompts with their completions, as text. In TRL's conversational form both are messages; the answers
// in the completion are learned.
var completions = layout{
	kind: kindCompletion, columns: []column{{names: []string{"tools"}, optional: true}, {names: []string{"prompt"}}, {names: []string{"completion"}}}, arrow: "→",
	parse: func(c columns) (r record, err error) {
		if c.values[1][0] == '[' || c.values[2][0] == '[' {
			return parseConversational(c)
		}
		if c.has(0) {
			return r, problem(ErrIgnored, "tools: found %s beside %s, which would be ignored: %s", describe(c.values[0]), c.layout.kind, toolsAdvice)
		}
		if r.prompt, err = c.text(1); err == nil {
			r.completion, err = c.text(2)
		}
		return r, err
	},
}

// kindConversational is the conversational form of completions.
const kindConversational kind = "prompt and completion messages"

// parseConversational parses a prompt and a completion of messages.
func parseConversational(c columns) (record, error) {
	prompt, err := messagesOf("prompt", c.values[1])
	if err != nil {
		return record{}, err
	}
	completion, err := messagesOf("completion", c.values[2])
	if err != nil {
		return record{}, err
	}
	answer, err := answered(kindConversational, c.values[0], prompt, completion)
	if err != nil {
		return record{}, err
	}
	return record{kind: kindConversational, conversation: answer.answers[0].conversation}, nil
}

// chatMessages are conversations in OpenAI's format, by whatever name of their list.
var chatMessages = layout{
	kind: kindMessages, columns: []column{{names: []string{"tools"}, optional: true}, {names: []string{"messages"}}},
	parse: func(c columns) (r record, err error) {
		r.conversation, err = conversationOf(c.names[1], c.values[1], c.values[0])
		return r, err
	},
}
