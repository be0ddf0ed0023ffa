package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Failure is an error with its HTTP status. Errors of handlers that are none are converted by
// [API.Classify].
type Failure struct {
	Status  int
	Message string
	Param   string // the invalid field, if any
	Code    string
	Retry   int   // seconds after which to retry, 0 if unknown
	Cause   error // for the log
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// Shape returns the body of an error response, and may set headers.
type Shape func(f *Failure, h http.Header) any

// Write answers a request with f.
func (f *Failure) Write(w http.ResponseWriter, shape Shape) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if f.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(f.Retry))
	}
	body, err := Marshal(shape(f, h))
	w.WriteHeader(f.Status)
	if err == nil {
		_, _ = w.Write(body) // the client has disconnected if this fails
	}
}

// Invalid returns a failure about a request field.
func Invalid(param, format string, args ...any) *Failure {
	return &Failure{Status: http.StatusBadRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// Faulty returns a failure about a request field whose message begins with the field's name.
func Faulty(name, format string, args ...any) *Failure {
	return Invalid(name, "%s: %s", name, fmt.Sprintf(format, args...))
}

// Draining returns the failure of a request to a server that is shutting down.
func Draining() *Failure {
	return &Failure{Status: http.StatusServiceUnavailable, Message: "the server is being shut down", Code: "draining", Retry: 5}
}

// StatusGone is the status that the log shows if the client has disconnected. It is never sent.
const StatusGone = 499

// failureOf converts an error to a failure. Internal errors are not disclosed.
func (a *API) failureOf(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if errors.Is(err, ErrGone) || errors.Is(err, context.Canceled) {
		return &Failure{Status: StatusGone, Message: err.Error(), Cause: err}
	}
	if f := a.Classify(err); f != nil {
		return f
	}
	return &Failure{Status: http.StatusInternalServerError, Message: "the server failed; its log says why", Cause: err}
}
