package serve

import (
	"github.com/lorafuse/lorafuse/internal/serve/tools"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// exchangeRequest is a decoded request for an answer to a conversation, from any endpoint.
type exchangeRequest struct {
	sampling     *samplingRequest
	shapes       []answerShape // from fields of the endpoint
	conversation conversationRequest
	field        string // of its messages
	tools        toolRequest
	form         tools.Form
	logprobs     bool // of answer tokens
	top          int  // number of alternatives per token
	most         *int // maximum number of answer tokens, from the field mostField
	mostField    string
}

// exchange is a request for an answer to a conversation, ready to run.
type exchange struct {
	*work
	conversation *conversation
	tools        *toolUse
}

// exchange validates a request, renders its conversation and returns the engine request.
func (s *Server) exchange(c *web.Call, t *target, r *exchangeRequest) (*exchange, error) {
	ctx := c.Request.Context()
	w, err := s.wish(ctx, r.sampling, r.shapes...)
	if err != nil {
		return nil, err
	}
	k, err := s.conversation(r.conversation, r.field, s.formatOf(t))
	if err != nil {
		return nil, err
	}
	u, err := s.toolUse(ctx, r.tools, r.form, w, k)
	if err != nil {
		return nil, err
	}
	w.logprobs, w.top = r.logprobs, r.top
	ids, err := s.prompt(ctx, k)
	if err != nil {
		return nil, err
	}
	if err := s.room(w, len(ids), of(r.most, -1), 0, r.mostField); err != nil {
		return nil, err
	}
	job, err := s.work(c, t, w, [][]int32{ids})
	if err != nil {
		return nil, err
	}
	return &exchange{job, k, u}, nil
}
