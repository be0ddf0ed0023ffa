package serve

// tokenize handles POST /tokenize, with the fields of vLLM.
func (s *Server) tokenize(c *call) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	t, err := s.target(c, f)
	if err != nil {
		return err
	}
	defer t.release()
	strs := f.flag("return_token_strs", false)
	var k *conversation
	var text string
	special := f.flag("add_special_tokens", true)
	switch isText := f.has("prompt"); {
	case isText && f.has("messages"):
		f.fault("prompt", "is given besides messages")
	case isText:
		text = f.text("prompt")
	case f.has("messages"):
		k = s.conversation(f, s.formatOf(t))
	default:
		f.fault("prompt", "is missing, and so is messages")
	}
	if err := c.checkUnread(f); err != nil {
		return err
	}
	var ids []int32
	if k != nil {
		ids, err = s.prompt(c.request.Context(), k)
	} else {
		ids, err = s.encode(prompt{text: text}, special)
	}
	if err != nil {
		return err
	}
	answer := struct {
		Count     int      `json:"count"`
		MaxLength int      `json:"max_model_len"`
		Tokens    []int32  `json:"tokens"`
		Strings   []string `json:"token_strs"`
	}{len(ids), s.options.MaxLength, append([]int32{}, ids...), nil}
	if strs {
		for _, id := range ids {
			token, _ := s.tokenizer.Token(id)
			answer.Strings = append(answer.Strings, token)
		}
	}
	return c.json(answer)
}

// detokenize handles POST /detokenize.
func (s *Server) detokenize(c *call) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	ids := f.ids("tokens", s.options.Model.Config.VocabSize)
	if !f.has("tokens") {
		f.fault("tokens", "is missing")
	}
	if err := c.checkUnread(f); err != nil {
		return err
	}
	t, err := s.target(c, f)
	if err != nil {
		return err
	}
	defer t.release()
	text, err := s.tokenizer.Decode(ids, false)
	if err != nil {
		return invalidBecause("tokens", err)
	}
	return c.json(struct {
		Prompt string `json:"prompt"`
	}{text})
}
