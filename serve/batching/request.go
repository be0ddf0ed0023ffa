// Package batching continues many texts at once: texts come and go between the tokens
// of others, each with an adapter of its own or none, over one cache of pages. The
// engine needs no HTTP; package serve puts it on the network.
package batching

import (
	"errors"
	"time"

	"github.com/lorafuse/lorafuse/generate"
	"github.com/lorafuse/lorafuse/lora"
)

// Errors of requests, which are about one of them and leave all others as they are.
var (
	// ErrQueue is the error for a request that comes when as many wait as may.
	ErrQueue = errors.New("too many requests wait")
	// ErrClosed is the error for a request of an engine that takes none any more.
	ErrClosed = errors.New("the engine is closed")
	// ErrRequest is the error for a request that cannot be answered as it is.
	ErrRequest = errors.New("wrong request")
)

// Request is a prompt and how it is to be continued.
type Request struct {
	Prompt []int32
	// Adapter is a reference in the registry of the engine, empty for the model alone.
	// What it stands for is settled when the request is taken, and stays until its end.
	Adapter string
	// Lease, if not nil, is the version that is meant, and stays the caller's: requests
	// that belong together meet one version. Adapter is then what it is called.
	Lease *lora.Lease
	// Answers say how each answer is made. All have the pages of the prompt in common.
	// Decoder and Grammar are of one answer each.
	Answers []generate.GenerateOptions
	// PromptLogprobs asks for the log-probabilities of the tokens of the prompt.
	PromptLogprobs bool
	// Client is who asks: those who wait have turns by adapter and client.
	Client string
	// Salt keeps texts apart: those of different salts share no pages.
	Salt string
}

// Token is one step of an answer.
type Token struct {
	// The token has no Prob: its answer may have gone on.
	generate.Token
	Answer int             // its number in Request.Answers
	Finish generate.Finish // of the answer, empty before its last token
	// Prompt is what was asked for of the tokens of the prompt, with the first token of
	// the first answer. That of the first token is zero: nothing stands before it.
	Prompt []generate.Logprobs
	Times  Times // with the last token of an answer
}

// Times are what became of a request.
type Times struct {
	Cached  int           // tokens of the prompt that were read before
	Queued  time.Duration // until it was begun
	Prefill time.Duration // until its first token
	Decode  time.Duration // from the first token to the last
}
