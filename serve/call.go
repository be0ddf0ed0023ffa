package serve

import (
	"bytes"
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
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
)

// call is a request in progress and the writer of its response.
type call struct {
	http.ResponseWriter
	request *http.Request
	server  *Server
	control *http.ResponseController
	id      string
	who     keys.Client
	client  string // name of who, or the address if there are no keys; for fair queueing and the log
	began   time.Time
	status  int // 0 before anything is written
	attrs   []slog.Attr
}

// requestID is the header with the ID of a request, in both directions.
const requestID = "X-Request-Id"

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{ResponseWriter: w, request: r, server: s, control: http.NewResponseController(w), id: r.Header.Get(requestID), began: time.Now()}
	if !isID(c.id) {
		c.id = newID()
	}
	c.Header().Set(requestID, c.id)
	c.Header().Set("X-Content-Type-Options", "nosniff")
	defer c.end()
	if r.ContentLength != 0 { // until the body is read, or discarded because the request is refused
		_ = c.control.SetReadDeadline(c.began.Add(s.options.BodyTimeout)) // if the connection supports deadlines
	}
	if c.crossOrigin() {
		return
	}
	h, pattern := s.routes.Handler(r)
	if pattern == "" {
		c.noRoute(h)
		return
	}
	s.routes.ServeHTTP(c, r)
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
	if err := c.admit(r.access); err != nil {
		c.fail(err)
	} else if err := r.handle(c); err != nil {
		c.fail(err)
	}
}

// admit checks the key, and whether the server is accepting requests.
func (c *call) admit(a access) error {
	s := c.server
	if a == everyone {
		return nil
	}
	scheme, key, _ := strings.Cut(c.request.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		key = ""
	}
	who, allowed := s.keys.Client(key)
	if !allowed || a == admins && s.keys.Admins != nil && !who.Admin {
		return &failure{status: http.StatusUnauthorized, message: "the key is missing or wrong; expected it as Authorization: Bearer KEY", code: "invalid_api_key"}
	}
	if c.who, c.client = who, who.Name; c.client == "" {
		c.client = c.request.RemoteAddr
		if host, _, err := net.SplitHostPort(c.client); err == nil {
			c.client = host
		}
	}
	if s.draining.Load() {
		return errDraining()
	}
	return nil
}

// salt returns the prefix-cache salt of the client's texts.
func (c *call) salt(chosen string) string {
	if c.server.options.SharePrefixCache {
		return chosen
	}
	return c.who.Salt(chosen)
}

// noRoute writes an error in OpenAI's form for a path or method without a route, in place of the
// error that h writes.
func (c *call) noRoute(h http.Handler) {
	said := refusal{header: http.Header{}}
	h.ServeHTTP(&said, c.request)
	f := &failure{status: said.status, message: fmt.Sprintf("there is no %s %.200s", c.request.Method, c.request.URL.Path)}
	if allow := said.header.Get("Allow"); allow != "" {
		c.Header().Set("Allow", allow)
		f.message += "; expected " + allow
	}
	c.fail(f)
}

// refusal records the status and headers of a response.
type refusal struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (r *refusal) Header() http.Header { return r.header }

// Write implements http.ResponseWriter.
func (r *refusal) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (r *refusal) WriteHeader(status int) { r.status = status }

// crossOrigin sets the CORS headers for allowed origins and answers preflight requests.
func (c *call) crossOrigin() (answered bool) {
	origin := c.request.Header.Get("Origin")
	if origin == "" || len(c.server.options.Origins) == 0 {
		return false
	}
	h := c.Header()
	h.Add("Vary", "Origin")
	for _, o := range c.server.options.Origins {
		if o == "*" || o == origin {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", requestID+", Retry-After")
		}
	}
	if c.request.Method != http.MethodOptions || c.request.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	if h.Get("Access-Control-Allow-Origin") != "" {
		h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
		h.Set("Access-Control-Allow-Headers", c.request.Header.Get("Access-Control-Request-Headers"))
		h.Set("Access-Control-Max-Age", "600")
	}
	c.WriteHeader(http.StatusNoContent)
	return true
}

// WriteHeader implements http.ResponseWriter.
func (c *call) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. It gives up on a client that blocks for too long.
func (c *call) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	const piece = 64 << 10
	written := 0
	for {
		next := b[written:min(written+piece, len(b))]
		_ = c.control.SetWriteDeadline(time.Now().Add(c.server.options.WriteTimeout)) // if the connection supports deadlines
		n, err := c.ResponseWriter.Write(next)
		if written += n; err != nil || written == len(b) {
			return written, err
		}
	}
}

// json writes a JSON response.
func (c *call) json(v any) error {
	b, err := marshal(v)
	if err != nil {
		return err
	}
	c.Header().Set("Content-Type", "application/json")
	_, err = c.Write(b)
	return err
}

// text writes a plain-text response.
func (c *call) text(s string) error {
	c.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := io.WriteString(c, s)
	return err
}

// marshal returns v as JSON and, unlike json.Marshal, does not escape <, > and &.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// fail writes an error response if nothing has been written.
func (c *call) fail(err error) {
	f := failureOf(err)
	c.failed(f)
	if c.status != 0 {
		return
	}
	f.write(c)
}

// failed records an error for the log.
func (c *call) failed(f *failure) {
	why := f.Error()
	if f.cause != nil {
		why = f.cause.Error()
	}
	c.note(slog.String("error", why))
	if f.status == statusGone {
		c.status = statusGone
	}
}

// note adds attributes to the log line of the request.
func (c *call) note(attrs ...slog.Attr) { c.attrs = append(c.attrs, attrs...) }

// end writes the log line. A panic is logged as a failed request.
func (c *call) end() {
	p := recover()
	begun := c.status != 0
	if p != nil && p != http.ErrAbortHandler {
		c.note(slog.String("stack", string(debug.Stack())))
		c.fail(fmt.Errorf("panic: %v", p))
	}
	level := slog.LevelInfo
	switch {
	case c.status >= http.StatusInternalServerError && c.status != http.StatusServiceUnavailable || p != nil:
		level = slog.LevelError
	case isProbe(c.request.URL.Path):
		level = slog.LevelDebug
	}
	attrs := append([]slog.Attr{
		slog.String("id", c.id), slog.String("method", c.request.Method), slog.String("path", c.request.URL.Path), slog.Int("status", c.status),
		slog.String("client", c.client), slog.Duration("took", time.Since(c.began)),
	}, c.attrs...)
	c.server.options.Logger.LogAttrs(context.WithoutCancel(c.request.Context()), level, "request", attrs...)
	if p == http.ErrAbortHandler || p != nil && begun {
		panic(http.ErrAbortHandler) // the response is incomplete
	}
}

// body reads the request body, which must be JSON by its type.
func (c *call) body() ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(c.request.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, &failure{status: http.StatusUnsupportedMediaType, message: fmt.Sprintf("found Content-Type %.100q, expected application/json", c.request.Header.Get("Content-Type"))}
	}
	most := c.server.options.MaxBody
	tooLarge := &failure{status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("the body has more than %d bytes", most)}
	if c.request.ContentLength > most {
		return nil, tooLarge // before any of it is read
	}
	raw, err := io.ReadAll(http.MaxBytesReader(c.ResponseWriter, c.request.Body, most))
	var timeout net.Error
	var passed *http.MaxBytesError
	switch {
	case err == nil:
		_ = c.control.SetReadDeadline(time.Time{}) // otherwise the rest still has to be discarded
		return raw, nil
	case errors.As(err, &passed):
		return nil, tooLarge
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, &failure{status: http.StatusRequestTimeout, message: "the body takes too long to come", cause: err}
	}
	return nil, &failure{status: http.StatusBadRequest, message: "the body ends before it is complete", cause: err}
}
