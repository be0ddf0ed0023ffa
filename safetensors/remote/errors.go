package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
)

// What can be wrong with a server or a file, for errors.Is.
var (
	ErrNoRanges = errors.New("server does not support range requests")
	ErrChanged  = errors.New("file has changed since it was opened")
	ErrResponse = errors.New("response does not fit the request")
	ErrStalled  = errors.New("no bytes came in time")
)

// StatusError is an answer with another status than the one asked for. It wraps
// fs.ErrNotExist for 404 and 410, and fs.ErrPermission for 401, 403 and 407.
type StatusError struct {
	Code int
}

// Error is the code and its text.
func (e *StatusError) Error() string {
	return fmt.Sprintf("status %d %s", e.Code, http.StatusText(e.Code))
}

// Unwrap returns the error of package fs that says the same, if there is one.
func (e *StatusError) Unwrap() error {
	switch e.Code {
	case http.StatusNotFound, http.StatusGone:
		return fs.ErrNotExist
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return fs.ErrPermission
	}
	return nil
}
