package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
)

// Call is a request in progress and the writer of its response.
type Call struct {
	http.ResponseWriter
	Request *http.Request
	ID      string
	Who     keys.Client
	Client  string // name of Who, or the address if there are no keys; for fair queueing and the log
	Status  int    // 0 before anything is written
	Quiet   bool   // frequent request, logged for debugging only
	Began   time.Time

	api     *API
	control *http.ResponseController

	attrs []slog.Attr
}

// isID reports whether s may appear in a log and in the id of an answer.
func isID(s string) bool {
	return s != "" && len(s) <= 128 && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }) < 0
}

func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// ErrGone is the error of a client that has disconnected or does not read.
var ErrGone = errors.New("the client has gone")

// WriteHeader implements http.ResponseWriter.
func (c *Call) WriteHeader(status int) {
	if c.Status == 0 {
		c.Status = status
	}
	c.extendWrite()
	c.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. It fails with ErrGone, also if the client reads too slowly.
func (c *Call) Write(b []byte) (int, error) {
	if c.Status == 0 {
		c.Status = http.StatusOK
	}
	const piece = 64 << 10
	written := 0
	for {
		c.extendWrite()
		n, err := c.ResponseWriter.Write(b[written:min(written+piece, len(b))])
		if written += n; err != nil {
			return written, fmt.Errorf("%w: %w", ErrGone, err)
		}
		if written == len(b) {
			return written, nil
		}
	}
}

// Flush sends buffered data to the client. It fails with ErrGone.
func (c *Call) Flush() error {
	if err := c.control.Flush(); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// extendWrite sets the deadline of the next write, if the connection supports deadlines.
func (c *Call) extendWrite() {
	_ = c.control.SetWriteDeadline(time.Now().Add(cmp.Or(c.api.WriteTimeout, 30*time.Second)))
}

// JSON writes a JSON response.
func (c *Call) JSON(v any) error {
	b, err := Marshal(v)
	if err != nil {
		return err
	}
	return c.Bytes("application/json", b)
}

// Bytes writes a response of a content type.
func (c *Call) Bytes(kind string, b []byte) error {
	c.Header().Set("Content-Type", kind)
	c.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, err := c.Write(b)
	return err
}

// Marshal returns v as JSON and, unlike json.Marshal, does not escape <, > and &.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Body reads the request body, which must have the content type kind.
func (c *Call) Body(kind string) ([]byte, error) {
	header := c.Request.Header
	if found, _, err := mime.ParseMediaType(header.Get("Content-Type")); err != nil || found != kind {
		return nil, &Failure{Status: http.StatusUnsupportedMediaType, Message: fmt.Sprintf("found Content-Type %.100q, expected %s", header.Get("Content-Type"), kind)}
	}
	if e := header.Get("Content-Encoding"); slices.Contains([]string{"gzip", "x-gzip", "compress", "deflate", "br", "zstd"}, strings.ToLower(e)) {
		return nil, &Failure{Status: http.StatusUnsupportedMediaType, Message: fmt.Sprintf("found Content-Encoding %s, expected none", e)}
	}
	most := c.api.MaxBody
	if c.Request.ContentLength > most {
		return nil, tooLarge(most) // before any of it is read
	}
	raw, err := io.ReadAll(http.MaxBytesReader(c.ResponseWriter, c.Request.Body, most))
	if err != nil {
		return nil, BodyFailure(err, "the body ends before it is complete")
	}
	c.BodyRead()
	return raw, nil
}

// BodyFailure converts an error of reading a body. incomplete is the message if the body has ended
// early.
func BodyFailure(err error, incomplete string) *Failure {
	var timeout net.Error
	if passed, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(passed.Limit)
	}
	if errors.As(err, &timeout) && timeout.Timeout() {
		return &Failure{Status: http.StatusRequestTimeout, Message: "the body takes too long to come", Cause: err}
	}
	return &Failure{Status: http.StatusBadRequest, Message: incomplete, Cause: err}
}

func tooLarge(most int64) *Failure {
	return &Failure{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the body has more than %d bytes", most)}
}

// BodyRead ends the time limit of the body, which has been read. Without it, the rest of the body
// still has to be discarded.
func (c *Call) BodyRead() { _ = c.control.SetReadDeadline(time.Time{}) }

// slowestBody is the minimum rate of a long body in bytes per second. Within each BodyTimeout the
// client must send as much as this rate requires, or the rest of the body.
const slowestBody = 16 << 10

// LongBody returns a reader of a body of at most most bytes, instead of MaxBody. The body may take
// longer than BodyTimeout if parts of it keep arriving.
func (c *Call) LongBody(most int64) io.Reader {
	return &longBody{call: c, from: http.MaxBytesReader(c.ResponseWriter, c.Request.Body, most)}
}

type longBody struct {
	call *Call
	from io.Reader
	part int64 // bytes since the last extension of the deadline
}

// Read implements io.Reader.
func (r *longBody) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	if r.part += int64(n); float64(r.part) >= slowestBody*r.call.api.bodyTimeout().Seconds() {
		r.part = 0
		r.call.extendBody()
	}
	return n, err
}

// Note adds attributes to the log line of the request.
func (c *Call) Note(attrs ...slog.Attr) { c.attrs = append(c.attrs, attrs...) }

// fail answers an error, unless the response has begun.
func (c *Call) fail(err error) {
	if f := c.Failed(err); c.Status == 0 {
		f.Write(c, c.api.Shape)
	}
}

// Failed records an error for the log, and returns it as a failure.
func (c *Call) Failed(err error) *Failure {
	f := c.api.failureOf(err)
	c.Note(slog.String("error", cmp.Or(f.Cause, error(f)).Error()))
	if f.Status == StatusGone {
		c.Status = StatusGone
	}
	return f
}

// end writes the log line. A panic is logged as a failed request.
func (c *Call) end() {
	p := recover()
	begun := c.Status != 0
	if p != nil && p != http.ErrAbortHandler {
		c.Note(slog.String("stack", string(debug.Stack())))
		c.fail(fmt.Errorf("panic: %v", p))
	}
	level := slog.LevelInfo
	switch {
	case c.Status >= http.StatusInternalServerError && c.Status != http.StatusServiceUnavailable || p != nil:
		level = slog.LevelError
	case c.Quiet:
		level = slog.LevelDebug
	}
	attrs := append([]slog.Attr{
		slog.String("id", c.ID), slog.String("method", c.Request.Method), slog.String("path", c.Request.URL.Path), slog.Int("status", c.Status),
		slog.String("client", c.Client), slog.Duration("took", time.Since(c.Began)),
	}, c.attrs...)
	c.api.Logger.LogAttrs(context.WithoutCancel(c.Request.Context()), level, "request", attrs...)
	if p == http.ErrAbortHandler || p != nil && begun {
		panic(http.ErrAbortHandler) // the response is incomplete
	}
}
