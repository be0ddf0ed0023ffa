package serve

import "github.com/lorafuse/lorafuse/internal/serve/web"

// tokenizeRequest is the body of POST /tokenize.
type tokenizeRequest struct {
	conversationRequest
	Model         *string `json:"model"`
	Prompt        *string `json:"prompt"`
	ReturnStrings bool    `json:"return_token_strs"`
}

// tokenize handles POST /tokenize, with the fields of vLLM.
func (s *Server) tokenize(c *web.Call) error {
	r := tokenizeRequest{conversationRequest: newConversationRequest()}
	if err := c.Decode(&r); err != nil {
		return err
	}
	t, err := s.target(c, r.Model)
	if err != nil {
		return err
	}
	defer t.release()
	var ids []int32
	switch {
	case r.Prompt != nil && r.Messages != nil:
		return web.Faulty("prompt", "is given besides messages")
	case r.Prompt != nil:
		ids, err = s.encode(prompt{text: *r.Prompt}, r.AddSpecialTokens == nil || *r.AddSpecialTokens)
	case r.Messages != nil:
		var k *conversation
		if k, err = s.conversation(r.conversationRequest, "messages", s.formatOf(t)); err == nil {
			ids, err = s.prompt(c.Request.Context(), k)
		}
	default:
		return web.Faulty("prompt", "is missing, and so is messages")
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
	if r.ReturnStrings {
		for _, id := range ids {
			token, _ := s.tokenizer.Token(id)
			answer.Strings = append(answer.Strings, token)
		}
	}
	return c.JSON(answer)
}

// detokenizeRequest is the body of POST /detokenize.
type detokenizeRequest struct {
	Model  *string   `json:"model"`
	Tokens *tokenIDs `json:"tokens"`
}

// detokenize handles POST /detokenize.
func (s *Server) detokenize(c *web.Call) error {
	var r detokenizeRequest
	if err := c.Decode(&r); err != nil {
		return err
	}
	if r.Tokens == nil {
		return web.Faulty("tokens", "is missing")
	}
	t, err := s.target(c, r.Model)
	if err != nil {
		return err
	}
	defer t.release()
	text, err := s.tokenizer.Decode(*r.Tokens, false)
	if err != nil {
		return invalidBecause("tokens", err)
	}
	return c.JSON(struct {
		Prompt string `json:"prompt"`
	}{text})
}
