package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/lorafuse/lorafuse/internal/embed"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// failure is an API error in OpenAI's form.
type failure struct {
	status  int
	message string
	param   string // the invalid field, if any
	code    string
	retry   int   // seconds after which to retry, 0 if unknown
	cause   error // for the log
}

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
)

func (f *failure) Error() string { return f.message }
func (f *failure) Unwrap() error { return f.cause }

func (f *failure) kind() string {
	switch {
	case f.status == http.StatusTooManyRequests:
		return rateLimited
	case f.status >= http.StatusInternalServerError:
		return serverError
	}
	return badRequest
}

// MarshalJSON returns the response body.
func (f *failure) MarshalJSON() ([]byte, error) {
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return json.Marshal(struct {
		Error body `json:"error"`
	}{body{f.message, f.kind(), orNull(f.param), orNull(f.code)}})
}

// headers sets the response headers of the error.
func (f *failure) headers(h http.Header) {
	if f.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(f.retry))
	}
	if f.status == http.StatusInsufficientStorage {
		h.Set("X-Should-Retry", "false") // which OpenAI's clients ask for
	}
	if f.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
}

// write answers a request with f.
func (f *failure) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	f.headers(h)
	w.WriteHeader(f.status)
	if body, err := marshal(f); err == nil {
		_, _ = w.Write(body) // the client has disconnected if this fails
	}
}

// invalid returns an error about a request field.
func invalid(param, format string, args ...any) *failure {
	return &failure{status: http.StatusBadRequest, param: param, message: fmt.Sprintf(format, args...)}
}

// invalidBecause returns an invalid-request error that wraps an error of another package.
func invalidBecause(param string, err error) *failure {
	f := invalid(param, "%s: %v", param, err)
	f.cause = err
	return f
}

func errDraining() *failure {
	return &failure{status: http.StatusServiceUnavailable, message: "the server is being shut down", code: "draining", retry: 5}
}

// statusGone is the status that the log shows if the client has disconnected. It is never sent.
const statusGone = 499

// failureOf converts an error to an API error. Internal errors are not disclosed to the client,
// only logged.
func failureOf(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	told := func(status int, code string) *failure {
		return &failure{status: status, message: err.Error(), code: code, cause: err}
	}
	hidden := func(status, retry int, message string) *failure {
		return &failure{status: status, message: message, retry: retry, cause: err}
	}
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	var left gone
	var tuned *tuning.Error
	switch {
	case errors.As(err, &tuned):
		return tuningFailure(tuned)
	case errors.As(err, &left):
		return hidden(statusGone, 0, "the client has gone")
	case is(context.Canceled):
		return hidden(statusGone, 0, "the request was cancelled")
	case is(batching.ErrQueue):
		f := told(http.StatusTooManyRequests, "rate_limit_exceeded")
		f.retry = 1
		return f
	case is(batching.ErrClosed, lora.ErrClosed, tuning.ErrClosed):
		f := errDraining()
		f.cause = err
		return f
	case is(lora.ErrNotFound, lora.ErrName):
		f := told(http.StatusNotFound, unknownModel)
		f.param = "model"
		return f
	case is(lora.ErrFull):
		return hidden(http.StatusServiceUnavailable, 1, "there is no room for the adapter at the moment")
	case is(context.DeadlineExceeded):
		return hidden(http.StatusGatewayTimeout, 0, "the request took too long")
	case is(generate.ErrTooLong):
		return told(http.StatusBadRequest, tooLong)
	case is(batching.ErrRequest, generate.ErrOption, generate.ErrToken, sample.ErrSetting,
		tokenizer.ErrInvalidUTF8, tokenizer.ErrUnknownText, tokenizer.ErrTokenID,
		chat.ErrRender, embed.ErrText):
		return told(http.StatusBadRequest, "")
	}
	return hidden(http.StatusInternalServerError, 0, "the server failed; its log says why")
}

// tuningFailure converts an error about files or jobs to an API error.
func tuningFailure(e *tuning.Error) *failure {
	f := &failure{status: http.StatusBadRequest, message: e.Message, param: e.Param, code: e.Code, cause: e}
	switch e.Kind {
	case tuning.ErrNotFound:
		f.status = http.StatusNotFound
	case tuning.ErrTooLarge:
		f.status = http.StatusRequestEntityTooLarge
	case tuning.ErrNoSpace:
		f.status = http.StatusInsufficientStorage
	}
	return f
}
