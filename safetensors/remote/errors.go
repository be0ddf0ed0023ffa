package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
)

// Errors of a server or a file, for errors.Is.
var (
	ErrNoRanges = errors.New("server does not support range requests")
	ErrChanged  = errors.New("file has changed since it was opened")
	ErrResponse = errors.New("response does not fit the request")
	ErrStalled  = errors.New("no bytes came in time")
)

// StatusError is a response with an unexpected status. It wraps fs.ErrNotExist
// for 404 and 410, and fs.ErrPermission for 401, 403 and 407.
type StatusError struct {
	Code int
}

// Error returns the status code and its text.
func (e *StatusError) Error() string {
	return fmt.Sprintf("status %d %s", e.Code, http.StatusText(e.Code))
}

// Unwrap returns the corresponding error of package fs, if any.
func (e *StatusError) Unwrap() error {
	switch e.Code {
	case http.StatusNotFound, http.StatusGone:
		return fs.ErrNotExist
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return fs.ErrPermission
	}
	return nil
}
