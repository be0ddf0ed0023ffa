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
	mostPatience = 2 * time.Minute // for servers that send Retry-After
)

// passing is a temporary error: the request can be repeated.
type passing struct {
	err   error
	after time.Duration // delay requested by the server, 0 if none
}

func (e *passing) Error() string { return e.err.Error() }
func (e *passing) Unwrap() error { return e.err }

// persist calls try, and repeats the call after temporary errors.
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
		wait := max(p.after, time.Duration((0.5+rand.Float64())*float64(backoff))) // jitter, so that requests do not repeat simultaneously
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

// statusError returns the error of a response with an unexpected status.
func statusError(resp *http.Response) error {
	// Reading a short body allows the next request to reuse the connection.
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	err := &StatusError{Code: resp.StatusCode}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &passing{err: err, after: retryAfter(resp.Header.Get("Retry-After"))}
	}
	return err
}

// retryAfter parses a number of seconds or a date.
func retryAfter(s string) time.Duration {
	if seconds, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(s); err == nil {
		return max(0, time.Until(date))
	}
	return 0
}
