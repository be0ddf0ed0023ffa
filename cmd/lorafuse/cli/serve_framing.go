package cli

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

// framedListener accepts connections whose requests are checked for conflicting lengths.
type framedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l framedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &framedConn{TCPConn: tcp}, err
	}
	return c, err
}

// framedConn inspects the headers of HTTP/1 requests as they arrive. A proxy and this server may disagree on the end
// of a request with both Content-Length and Transfer-Encoding, so the bytes after it could smuggle a request past the
// proxy. net/http removes the Content-Length before handlers can check.
type framedConn struct {
	*net.TCPConn
	ambiguous atomic.Bool // a request had both headers

	line    []byte // the header received so far
	length  int64  // Content-Length of this request
	sized   bool   // it has one
	chunked bool   // has Transfer-Encoding; nothing after such a request is read
	body    int64  // bytes before the next request
}

// Read implements net.Conn.
func (c *framedConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.watch(b[:n])
	return n, err
}

func (c *framedConn) watch(b []byte) {
	for len(b) > 0 {
		if c.body > 0 {
			skip := min(c.body, int64(len(b)))
			c.body -= skip
			b = b[skip:]
			continue
		}
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if c.line = append(c.line, line...); !whole {
			return
		}
		if b = rest; c.header(string(bytes.TrimRight(c.line, "\r"))) {
			return
		}
		c.line = c.line[:0]
	}
}

// header parses a header line of a request. It reports whether inspection can stop because the connection is closed
// after this request.
func (c *framedConn) header(line string) (last bool) {
	name, value, _ := strings.Cut(line, ":")
	switch {
	case line == "":
		c.body, c.length, c.sized = c.length, 0, false
		return c.chunked
	case strings.EqualFold(name, "Transfer-Encoding"):
		c.chunked = true
	case strings.EqualFold(name, "Content-Length"):
		c.length, _ = strconv.ParseInt(strings.TrimSpace(value), 10, 64) // net/http refuses others
		c.sized = true
	}
	if c.chunked && c.sized {
		c.ambiguous.Store(true)
	}
	return false
}

// framing is the key of the framedConn in the context of its requests.
type framing struct{}

// withFraming implements http.Server.ConnContext.
func withFraming(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, framing{}, c)
}

// isFramed refuses a request with two lengths, and has the connection closed after one with
// Transfer-Encoding: with TLS its headers cannot be watched.
func isFramed(w http.ResponseWriter, r *http.Request) bool {
	c, _ := r.Context().Value(framing{}).(*framedConn)
	ambiguous := c != nil && c.ambiguous.Load()
	if ambiguous || len(r.TransferEncoding) > 0 && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	if ambiguous {
		writeError(w, http.StatusBadRequest, "invalid_request_error", "two_lengths", "the request has both Content-Length and Transfer-Encoding, expected one of them")
	}
	return !ambiguous
}
