package tinker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
)

// call is a request in progress and the writer of its response.
type call struct {
	http.ResponseWriter
	request *http.Request
	server  *Server
	who     keys.Client
	began   time.Time
	status  int // 0 before anything is written
	err     error
	quiet   bool // frequent request, not logged
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{ResponseWriter: w, request: r, server: s, began: time.Now()}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	defer c.end()
	if r.ContentLength != 0 { // until the body is read, or discarded because the request is refused
		_ = http.NewResponseController(w).SetReadDeadline(c.began.Add(bodyTimeout)) // if the connection supports deadlines
	}
	if _, pattern := s.routes.Handler(r); pattern == "" {
		c.fail(notFound("there is no %s %.200s", r.Method, r.URL.Path))
		return
	}
	s.routes.ServeHTTP(c, r)
}

// access selects the clients that may use a route.
type access int

const (
	everyone access = iota
	users
)

// route is the handler of an endpoint. It checks that the client may use it.
type route struct {
	server *Server
	access access
	handle func(*call) error
}

// ServeHTTP implements http.Handler. [Server.ServeHTTP] calls it with its call as the writer.
func (r route) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c := w.(*call)
	c.request = req // with its path values
	if r.access == users {
		var ok bool
		if c.who, ok = c.server.keys.Client(req.Header.Get("X-API-Key")); !ok {
			c.fail(&failure{status: http.StatusUnauthorized, message: "the key is missing or wrong; expected it as X-API-Key"})
			return
		}
	}
	if err := r.handle(c); err != nil {
		c.fail(err)
	}
}

// writeTimeout is the time limit of a write to a client.
const writeTimeout = 30 * time.Second

// extend sets the deadline of the next write, since a connection keeps the deadline of the previous
// response.
func (c *call) extend() {
	_ = http.NewResponseController(c.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTimeout)) // if the connection supports deadlines
}

// WriteHeader implements http.ResponseWriter.
func (c *call) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.extend()
	c.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (c *call) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	c.extend()
	return c.ResponseWriter.Write(b)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (c *call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// json writes a JSON response.
func (c *call) json(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.bytes("application/json", b)
}

// bytes writes a response in chunks, so that a slow client can receive it in time.
func (c *call) bytes(kind string, b []byte) error {
	const piece = 64 << 10
	c.Header().Set("Content-Type", kind)
	c.Header().Set("Content-Length", strconv.Itoa(len(b)))
	for ; len(b) > 0; b = b[min(piece, len(b)):] {
		if _, err := c.Write(b[:min(piece, len(b))]); err != nil {
			return fmt.Errorf("%w: %w", errGone, err)
		}
	}
	return nil
}

// errGone is the error of a client that has disconnected or does not read.
var errGone = errors.New("the client has gone")

// bodyTimeout is the time limit for receiving a request.
const bodyTimeout = time.Minute

// body reads the request body, which must have the content type kind.
func (c *call) body(kind string) ([]byte, error) {
	if found, _, err := mime.ParseMediaType(c.request.Header.Get("Content-Type")); err != nil || found != kind {
		return nil, &failure{status: http.StatusUnsupportedMediaType, message: fmt.Sprintf("found Content-Type %.100q, expected %s", c.request.Header.Get("Content-Type"), kind)}
	}
	if e := c.request.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, &failure{status: http.StatusUnsupportedMediaType, message: fmt.Sprintf("found Content-Encoding %.100q, expected none", e)}
	}
	raw, err := io.ReadAll(http.MaxBytesReader(c.ResponseWriter, c.request.Body, c.server.options.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &failure{status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("the request has more than %d bytes", large.Limit)}
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	_ = http.NewResponseController(c.ResponseWriter).SetReadDeadline(time.Time{}) // polls may last longer
	return raw, nil
}

// read decodes the JSON request body into v.
func (c *call) read(v any) error {
	raw, err := c.body("application/json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return invalid("the body is not what was expected: %v", err)
	}
	return nil
}

// failure is an error response.
type failure struct {
	status  int
	message string
	retry   string // seconds after which to retry
	cause   error  // for the log
}

func (f *failure) Error() string { return f.message }
func (f *failure) Unwrap() error { return f.cause }

func invalid(format string, args ...any) error {
	return &failure{status: http.StatusBadRequest, message: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return &failure{status: http.StatusNotFound, message: fmt.Sprintf(format, args...)}
}

func unsupported(format string, args ...any) error {
	return &failure{status: http.StatusBadRequest, message: fmt.Sprintf("not supported: "+format, args...)}
}

// failureOf converts an error to an error response.
func failureOf(err error) *failure {
	var f *failure
	told := func(status int) *failure { return &failure{status: status, message: err.Error(), cause: err} }
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, errGone), errors.Is(err, context.Canceled):
		return told(499)
	case errors.Is(err, errFull), errors.Is(err, errAhead):
		f := told(http.StatusTooManyRequests)
		f.retry = "1"
		return f
	case errors.Is(err, errEnded):
		return told(http.StatusGone)
	case errors.Is(err, ErrNotFound):
		return told(http.StatusNotFound)
	case errors.Is(err, ErrRequest), errors.Is(err, ErrUnsupported), errors.Is(err, errWire), errors.Is(err, errPast):
		return told(http.StatusBadRequest)
	}
	return &failure{status: http.StatusInternalServerError, message: "the server failed; its log says why", cause: err}
}

// fail writes an error response if nothing has been written.
func (c *call) fail(err error) {
	f := failureOf(err)
	if c.err = f.cause; c.err == nil {
		c.err = f
	}
	if c.status != 0 {
		return
	}
	if f.retry != "" {
		c.Header().Set("Retry-After", f.retry)
	}
	body, err := json.Marshal(map[string]string{"detail": f.message})
	if err == nil {
		c.Header().Set("Content-Type", "application/json")
		c.WriteHeader(f.status)
		_, _ = c.Write(body) // the client has disconnected if this fails
	}
}

// end writes the log line. A panic is logged as a failed request.
func (c *call) end() {
	p := recover()
	attrs := []slog.Attr{slog.String("method", c.request.Method), slog.String("path", c.request.URL.Path), slog.String("client", c.who.Name)}
	if p != nil {
		attrs = append(attrs, slog.String("stack", string(debug.Stack())))
		c.fail(fmt.Errorf("panic: %v", p))
	}
	attrs = append(attrs, slog.Int("status", c.status), slog.Duration("took", time.Since(c.began)))
	level := slog.LevelInfo
	if c.quiet {
		level = slog.LevelDebug
	}
	if c.err != nil {
		attrs = append(attrs, slog.String("error", c.err.Error()))
	}
	if c.status >= http.StatusInternalServerError && c.status != http.StatusServiceUnavailable {
		level = slog.LevelError
	}
	c.server.options.Logger.LogAttrs(context.WithoutCancel(c.request.Context()), level, "request", attrs...)
}
