// Package batching implements continuous batching over a paged KV cache. Sequences join and leave
// the batch between steps; each has its own LoRA adapter, or none. The engine does not depend on
// HTTP; package serve adds the network API.
package batching

import (
	"errors"
	"time"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/lora"
)

// Errors of one request. They do not affect other requests.
var (
	// ErrQueue is the error for a request that arrives while the queue is full.
	ErrQueue = errors.New("too many requests wait")
	// ErrClosed is the error for a request to an engine that accepts no more requests.
	ErrClosed = errors.New("the engine is closed")
	// ErrRequest is the error for an invalid request.
	ErrRequest = errors.New("wrong request")
)

// Request is a prompt with generation options.
type Request struct {
	Prompt []int32
	// Adapter is a reference in the engine's registry, or empty for the base model. It is resolved
	// when the request is accepted and stays the same until its end.
	Adapter string
	// Lease, if not nil, is the adapter version to use, so that related requests get the same
	// version. The caller keeps ownership. Adapter is then its name.
	Lease *lora.Lease
	// Answers holds the options of each answer. All answers share the pages of the prompt. A
	// Decoder or Grammar must not be used for more than one answer.
	Answers []generate.GenerateOptions
	// PromptLogprobs requests the log-probabilities of the prompt's tokens.
	PromptLogprobs bool
	// Client identifies the sender. Waiting requests take turns by adapter and client.
	Client string
	// Salt separates caches: texts with different salts share no pages.
	Salt string
}

// Token is a token of an answer.
type Token struct {
	// The token has no Prob, since its answer may have advanced.
	generate.Token
	Answer int             // index in Request.Answers
	Finish generate.Finish // empty before the last token of the answer
	// Prompt holds the requested log-probabilities of the prompt. It comes with the first token of
	// the first answer. The entry of the first prompt token is zero.
	Prompt []generate.Logprobs
	Times  Times // set with the last token of an answer
}

// Times holds the timing of a request.
type Times struct {
	Cached  int           // prompt tokens found in the cache
	Queued  time.Duration // until the request started
	Prefill time.Duration // from the start to the first token
	Decode  time.Duration // from the first token to the last
}
