package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// version identifies the version of a file on a server. All responses must have
// the same.
type version struct {
	size     int64
	etag     string // empty if the server sends none
	modified string // date of the last change, empty if the server sends none
}

// answer is a response that is being received.
type answer struct {
	version version
	length  int64 // of the requested part
	body    io.ReadCloser

	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
	slot   chan struct{} // slot to release
}

// ask requests n bytes from offset off and checks the headers of the response.
// Before the file is open, the response may be shorter, and its version becomes
// that of the file.
func (r *ReaderAt) ask(ctx context.Context, off, n int64) (*answer, error) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	a := &answer{stall: r.options.Stall, slot: r.slots}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.timer = time.AfterFunc(a.stall, func() { a.cancel(ErrStalled) })
	if err := r.request(a, off, n); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (r *ReaderAt) request(a *answer, off, n int64) error {
	req, err := http.NewRequestWithContext(a.ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return withoutURL(err)
	}
	for key, values := range r.options.Header {
		req.Header[key] = values
	}
	req.Header.Set("Accept-Encoding", "identity") // offsets refer to the uncompressed file
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	if validator := r.version.validator(); validator != "" {
		req.Header.Set("If-Range", validator)
	}
	resp, err := r.options.Client.Do(req)
	if err != nil {
		if resp != nil {
			return withoutURL(err) // a refused redirect is permanent
		}
		return a.failure(withoutURL(err))
	}
	a.body = resp.Body
	a.alive()
	return r.check(a, resp, off, n)
}

// validator returns the value of the If-Range header, which makes a server with
// another version of the file send all of it. Weak tags are not allowed in this
// header.
func (v version) validator() string {
	switch {
	case v.etag == "":
		return v.modified
	case strings.HasPrefix(v.etag, "W/"):
		return ""
	}
	return v.etag
}

// check checks the headers of a response.
func (r *ReaderAt) check(a *answer, resp *http.Response, off, n int64) error {
	opened := r.version != version{}
	switch {
	case resp.StatusCode == http.StatusOK && r.version.validator() != "":
		return ErrChanged
	case resp.StatusCode == http.StatusOK:
		return ErrNoRanges
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && opened:
		return fmt.Errorf("%w: it has no byte %d", ErrChanged, off)
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && resp.Header.Get("Content-Range") == "bytes */0":
		a.body = http.NoBody // an empty file
		return nil
	case resp.StatusCode != http.StatusPartialContent:
		if err := CheckLocation(resp); err != nil {
			return err
		}
		return statusError(resp)
	}
	if encoding := resp.Header.Get("Content-Encoding"); resp.Uncompressed || encoding != "" && encoding != "identity" {
		return badAnswer("a body that is encoded as %q", encoding)
	}
	begin, end, size, ok := parseContentRange(resp.Header.Get("Content-Range"))
	if !ok {
		return badAnswer("Content-Range %q", resp.Header.Get("Content-Range"))
	}
	a.version = version{size: size, etag: resp.Header.Get("ETag"), modified: resp.Header.Get("Last-Modified")}
	if opened {
		if err := r.version.check(a.version); err != nil {
			return err
		}
	}
	a.length = min(n, size-off)
	if begin != off || end != off+a.length-1 {
		return badAnswer("bytes %d to %d where %d to %d were asked for", begin, end, off, off+a.length-1)
	}
	if resp.ContentLength >= 0 && resp.ContentLength != a.length {
		return badAnswer("%d bytes for a range of %d", resp.ContentLength, a.length)
	}
	return nil
}

// check compares the version in a response with the version of the open file.
func (v version) check(now version) error {
	switch {
	case now.size != v.size:
		return fmt.Errorf("%w: %d bytes, not %d", ErrChanged, now.size, v.size)
	case now.etag != "" && v.etag != "" && strings.TrimPrefix(now.etag, "W/") != strings.TrimPrefix(v.etag, "W/"):
		return fmt.Errorf("%w: its tag is %s, not %s", ErrChanged, now.etag, v.etag)
	case now.etag == "" && v.etag == "" && now.modified != v.modified:
		return fmt.Errorf("%w: its date is %q, not %q", ErrChanged, now.modified, v.modified)
	}
	return nil
}

// parseContentRange parses "bytes 0-99/1000".
func parseContentRange(s string) (begin, end, size int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	span, total, found := strings.Cut(s, "/")
	first, last, dash := strings.Cut(span, "-")
	if !ok || !found || !dash {
		return 0, 0, 0, false
	}
	var n [3]int64
	for i, digits := range []string{first, last, total} {
		u, err := strconv.ParseUint(digits, 10, 63)
		if err != nil {
			return 0, 0, 0, false
		}
		n[i] = int64(u)
	}
	return n[0], n[1], n[2], n[0] <= n[1] && n[1] < n[2]
}

// alive restarts the stall timer. It must be called whenever the server has
// sent bytes.
func (a *answer) alive() { a.timer.Reset(a.stall) }

func (a *answer) close() {
	a.timer.Stop()
	a.cancel(nil)
	if a.body != nil {
		a.body.Close()
	}
	<-a.slot
}

// failure returns the error of a connection. It is temporary unless the caller
// has canceled the request or a retry would fail again.
func (a *answer) failure(err error) error {
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	switch {
	case context.Cause(a.ctx) == ErrStalled:
		return &passing{err: ErrStalled}
	case a.ctx.Err() != nil:
		return err
	case errors.As(err, &dns) && dns.IsNotFound, errors.As(err, &certificate), errors.As(err, &noTLS), errors.Is(err, http.ErrSchemeMismatch):
		return err
	}
	return &passing{err: err}
}

func badAnswer(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrResponse, fmt.Sprintf(format, args...))
}
