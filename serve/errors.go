package serve

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/embed"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/serve/web"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// Error types of OpenAI's API.
const (
	badRequest  = "invalid_request_error"
	rateLimited = "rate_limit_error"
	serverError = "server_error"
)

// Error codes with several uses.
const (
	tooLong      = "context_length_exceeded"
	unknownModel = "model_not_found"
	deviceLost   = "device_lost"
)

// shape returns a failure in OpenAI's form.
func shape(f *web.Failure, h http.Header) any {
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	kind := badRequest
	switch {
	case f.Status == http.StatusTooManyRequests:
		kind = rateLimited
	case f.Status >= http.StatusInternalServerError:
		kind = serverError
	}
	switch f.Status {
	case http.StatusInsufficientStorage:
		h.Set("X-Should-Retry", "false") // which OpenAI's clients ask for
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	}
	return struct {
		Error body `json:"error"`
	}{body{f.Message, kind, orNone(f.Param), orNone(f.Code)}}
}

// invalidBecause returns an invalid-request error that wraps an error of another package.
func invalidBecause(param string, err error) *web.Failure {
	f := web.Invalid(param, "%s: %v", param, err)
	f.Cause = err
	return f
}

// classify converts an error of another package to a failure.
func classify(err error) *web.Failure {
	told := func(status int, code string) *web.Failure {
		return &web.Failure{Status: status, Message: err.Error(), Code: code, Cause: err}
	}
	hidden := func(status, retry int, message string) *web.Failure {
		return &web.Failure{Status: status, Message: message, Retry: retry, Cause: err}
	}
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
	var tuned *tuning.Error
	switch {
	case errors.As(err, &tuned):
		return tuningFailure(tuned)
	case is(batching.ErrQueue):
		f := told(http.StatusTooManyRequests, "rate_limit_exceeded")
		f.Retry = 1
		return f
	case is(batching.ErrClosed, lora.ErrClosed, tuning.ErrClosed):
		f := web.Draining()
		f.Cause = err
		return f
	case is(lora.ErrNotFound, lora.ErrName):
		f := told(http.StatusNotFound, unknownModel)
		f.Param = "model"
		return f
	case is(lora.ErrFull):
		return hidden(http.StatusServiceUnavailable, 1, "there is no room for the adapter at the moment")
	case is(backend.ErrLost):
		f := hidden(http.StatusServiceUnavailable, 1, "the device that computed the answer is lost; repeat the request")
		f.Code = deviceLost
		return f
	case is(context.DeadlineExceeded):
		return hidden(http.StatusGatewayTimeout, 0, "the request took too long")
	case is(generate.ErrTooLong):
		return told(http.StatusBadRequest, tooLong)
	case is(batching.ErrRequest, generate.ErrOption, generate.ErrToken, sample.ErrSetting,
		tokenizer.ErrInvalidUTF8, tokenizer.ErrUnknownText, tokenizer.ErrTokenID,
		chat.ErrRender, embed.ErrText):
		return told(http.StatusBadRequest, "")
	}
	return nil
}

// tuningFailure converts an error about files or jobs to an API error.
func tuningFailure(e *tuning.Error) *web.Failure {
	f := &web.Failure{Status: http.StatusBadRequest, Message: e.Message, Param: e.Param, Code: e.Code, Cause: e}
	switch e.Kind {
	case tuning.ErrNotFound:
		f.Status = http.StatusNotFound
	case tuning.ErrTooLarge:
		f.Status = http.StatusRequestEntityTooLarge
	case tuning.ErrNoSpace:
		f.Status = http.StatusInsufficientStorage
	}
	return f
}
