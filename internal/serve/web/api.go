// Package web is the HTTP layer of the APIs of a server. It checks API keys, decodes bodies into
// structs, limits their size and time, answers errors in the form of the API, and logs requests.
package web

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
)

// API is the HTTP handler of one API. Its fields are set before the first request.
type API struct {
	Keys keys.Ring
	// Key returns the API key of a request, and KeyExpected says where a client sends it.
	Key         func(*http.Request) string
	KeyExpected string
	// Admit, if not nil, is called for requests with an accepted key, and may refuse them.
	Admit func(*Call) error
	// Classify converts an error of another package to a failure. It returns nil for internal
	// errors, which are logged and not disclosed.
	Classify func(error) *Failure
	Shape    Shape

	// Limits are the numbers that struct tags name; see [Decoder].
	Limits map[string]int
	// Unsupported holds the fields that requests may not have, by name.
	Unsupported map[string]Field

	Origins      []string      // allowed web origins; "*" allows all
	MaxBody      int64         // request size in bytes
	BodyTimeout  time.Duration // for receiving a request; 0 means one minute
	WriteTimeout time.Duration // for each write to a client; 0 means 30 s
	Logger       *slog.Logger

	routes  http.ServeMux
	unknown unknownFields
}

// Access selects the clients that may use a route.
type Access int

// Everyone needs no key, Users one of any kind, and Admins that of an administrator if there are
// any.
const (
	Everyone Access = iota
	Users
	Admins
)

// Handle adds a route. pattern is that of [http.ServeMux]. An error of handle is answered unless
// the response has begun.
func (a *API) Handle(pattern string, access Access, handle func(*Call) error) {
	a.routes.Handle(pattern, route{access, handle})
}

// requestID is the header with the ID of a request, in both directions.
const requestID = "X-Request-Id"

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &Call{ResponseWriter: w, Request: r, ID: r.Header.Get(requestID), api: a, control: http.NewResponseController(w), Began: time.Now()}
	if !isID(c.ID) {
		c.ID = newID()
	}
	c.Header().Set(requestID, c.ID)
	c.Header().Set("X-Content-Type-Options", "nosniff")
	defer c.end()
	if r.ContentLength != 0 { // until the body is read, or discarded because the request is refused
		c.extendBody()
	}
	if c.crossOrigin() {
		return
	}
	h, pattern := a.routes.Handler(r)
	if pattern == "" {
		c.noRoute(h)
		return
	}
	a.routes.ServeHTTP(c, r)
}

// route is the handler of an endpoint. [API.ServeHTTP] calls it with its call as the writer.
type route struct {
	access Access
	handle func(*Call) error
}

// ServeHTTP implements http.Handler.
func (r route) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c := w.(*Call)
	c.Request = req // with its path values
	err := c.admit(r.access)
	if err == nil {
		err = r.handle(c)
	}
	if err != nil {
		c.fail(err)
	}
}

// admit checks the key of a request.
func (c *Call) admit(access Access) error {
	if access == Everyone {
		return nil
	}
	var allowed bool
	c.Who, allowed = c.api.Keys.Client(c.api.Key(c.Request))
	if !allowed || access == Admins && c.api.Keys.Admins != nil && !c.Who.Admin {
		c.Who = keys.Client{}
		return &Failure{Status: http.StatusUnauthorized, Message: "the key is missing or wrong; expected it as " + c.api.KeyExpected, Code: "invalid_api_key"}
	}
	if c.Client = c.Who.Name; c.Client == "" {
		c.Client = c.Request.RemoteAddr
		if host, _, err := net.SplitHostPort(c.Client); err == nil {
			c.Client = host
		}
	}
	if c.api.Admit != nil {
		return c.api.Admit(c)
	}
	return nil
}

// noRoute answers a request for a path or method without a route, in place of h.
func (c *Call) noRoute(h http.Handler) {
	said := refusal{header: http.Header{}}
	h.ServeHTTP(&said, c.Request)
	f := &Failure{Status: said.status, Message: fmt.Sprintf("there is no %s %.200s", c.Request.Method, c.Request.URL.Path)}
	if allow := said.header.Get("Allow"); allow != "" {
		c.Header().Set("Allow", allow)
		f.Message += "; expected " + allow
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
func (c *Call) crossOrigin() (answered bool) {
	origin := c.Request.Header.Get("Origin")
	if origin == "" || len(c.api.Origins) == 0 {
		return false
	}
	h := c.Header()
	h.Add("Vary", "Origin")
	for _, o := range c.api.Origins {
		if o == "*" || o == origin {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", requestID+", Retry-After")
		}
	}
	if c.Request.Method != http.MethodOptions || c.Request.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	if h.Get("Access-Control-Allow-Origin") != "" {
		h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
		h.Set("Access-Control-Allow-Headers", c.Request.Header.Get("Access-Control-Request-Headers"))
		h.Set("Access-Control-Max-Age", "600")
	}
	c.WriteHeader(http.StatusNoContent)
	return true
}

// extendBody sets the deadline of the rest of the body, if the connection supports deadlines.
func (c *Call) extendBody() {
	_ = c.control.SetReadDeadline(time.Now().Add(c.api.bodyTimeout()))
}

func (a *API) bodyTimeout() time.Duration { return cmp.Or(a.BodyTimeout, time.Minute) }
