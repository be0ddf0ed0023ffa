package data

// Questions with their answers, under the names of common datasets. Each row is a conversation of one question, after
// an optional system prompt.
var (
	questionAnswer = askedLayout("question/answer", "question", "answer", "response")
	queryResponse  = askedLayout("query/response", "query", "response", "answer", "output")
	inputOutput    = askedLayout("input/output", "input", "output")
	promptResponse = askedLayout("prompt/response", "prompt", "response", "answer", "output")
)

// askedLayout returns the layout of a question and an answer.
func askedLayout(name kind, question string, answers ...string) layout {
	return layout{
		kind:    name,
		columns: []column{{names: []string{"system", "system_prompt"}, optional: true}, {names: []string{question}}, {names: answers}},
		arrow:   "→", content: true,
		parse: func(c columns) (record, error) {
			text, err := c.text(1)
			if err != nil {
				return record{}, err
			}
			return c.asked(0, nil, text, 2)
		},
	}
}
