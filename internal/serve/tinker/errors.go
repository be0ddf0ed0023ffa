package tinker

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// shape returns a failure in the protocol's form.
func shape(f *web.Failure, _ http.Header) any { return map[string]string{"detail": f.Message} }

func invalid(format string, args ...any) error { return web.Invalid("", format, args...) }

func notFound(format string, args ...any) error {
	return &web.Failure{Status: http.StatusNotFound, Message: fmt.Sprintf(format, args...)}
}

func unsupported(format string, args ...any) error {
	return invalid("not supported: "+format, args...)
}

// full returns the failure of a request that may succeed later.
func full(retry int, format string, args ...any) error {
	return &web.Failure{Status: http.StatusTooManyRequests, Message: fmt.Sprintf(format, args...), Retry: retry}
}

// classify converts an error of this package to a failure.
func classify(err error) *web.Failure {
	f := &web.Failure{Message: err.Error(), Cause: err}
	switch {
	case errors.Is(err, errFull), errors.Is(err, errAhead):
		f.Status, f.Retry = http.StatusTooManyRequests, 1
	case errors.Is(err, errEnded):
		f.Status = http.StatusGone
	case errors.Is(err, ErrNotFound):
		f.Status = http.StatusNotFound
	case errors.Is(err, ErrRequest), errors.Is(err, ErrUnsupported), errors.Is(err, errWire), errors.Is(err, errPast):
		f.Status = http.StatusBadRequest
	default:
		return nil
	}
	return f
}
