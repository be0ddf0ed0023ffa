package remote

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	mostBackoff  = 30 * time.Second
	mostPatience = 2 * time.Minute // with servers that say when to come back
)

// passing is an error after which it makes sense to try again.
type passing struct {
	err   error
	after time.Duration // when, by the word of the server; 0 where it gives none
}

func (e *passing) Error() string { return e.err.Error() }
func (e *passing) Unwrap() error { return e.err }

// persist tries, and tries again after errors that may pass.
func (r *ReaderAt) persist(ctx context.Context, try func() error) error {
	backoff := r.options.Backoff
	for tries := 0; ; tries++ {
		err := try()
		var p *passing
		if !errors.As(err, &p) {
			return err
		}
		if tries >= r.options.Retries || p.after > mostPatience {
			return p.err
		}
		wait := max(p.after, time.Duration((0.5+rand.Float64())*float64(backoff))) // not all at the same time
		backoff = min(2*backoff, mostBackoff)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), p.err)
		}
	}
}

// statusError is the error of an answer that is none.
func statusError(resp *http.Response) error {
	// A short text leaves the connection to the next request.
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	err := &StatusError{Code: resp.StatusCode}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &passing{err: err, after: retryAfter(resp.Header.Get("Retry-After"))}
	}
	return err
}

// retryAfter reads seconds or a date.
func retryAfter(s string) time.Duration {
	if seconds, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(s); err == nil {
		return max(0, time.Until(date))
	}
	return 0
}
