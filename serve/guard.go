package serve

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// Guard refuses requests that a web page of another site may have sent through a visitor's browser.
// An unknown Host header (DNS rebinding) gets status 421; a request from another origin that may
// change state (cross-site request forgery) gets status 403. A Guard should wrap every handler of a
// port, not only a [Server].
type Guard struct {
	// Hosts are names and addresses that the Host header may have besides localhost and
	// loopback addresses; ports are ignored. "*" allows all.
	Hosts []string
	// Addresses allows every IP address as the host, since DNS rebinding requires a name.
	Addresses bool
	// Origins are origins of trusted web pages, such as https://chat.example.com; "*" allows
	// all.
	Origins []string
}

// Protect returns a handler that passes allowed requests on to h. It fails if an origin is
// malformed. Requests to /health, /ready and /ping are allowed for any host, so that probes need no
// configuration.
func (g Guard) Protect(h http.Handler) (http.Handler, error) {
	p := &protected{Guard: g, next: h}
	p.Hosts = nil
	for _, host := range g.Hosts {
		p.Hosts = append(p.Hosts, hostOf(host))
	}
	for _, origin := range g.Origins {
		if origin == "*" {
			p.anyOrigin = true
		} else if err := p.origins.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("serve: found %.100q, expected an origin such as https://chat.example.com: %w", origin, err)
		}
	}
	return p, nil
}

// protected wraps a handler with a guard.
type protected struct {
	Guard
	next      http.Handler
	origins   http.CrossOriginProtection
	anyOrigin bool
}

// ServeHTTP implements http.Handler.
func (p *protected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !isProbe(r.URL.Path) && !p.isAllowed(hostOf(r.Host)) {
		(&web.Failure{
			Status: http.StatusMisdirectedRequest, Code: "host_not_allowed",
			Message: fmt.Sprintf("the host %.200q is not allowed; the flag --allowed-host of the server adds one", r.Host),
		}).Write(w, shape)
		return
	}
	if err := p.origins.Check(r); err != nil && !p.anyOrigin {
		(&web.Failure{
			Status: http.StatusForbidden, Code: "cross_origin",
			Message: fmt.Sprintf("the origin %.200q is not allowed; the flag --allow-origin of the server adds one", r.Header.Get("Origin")), Cause: err,
		}).Write(w, shape)
		return
	}
	p.next.ServeHTTP(w, r)
}

// isAllowed reports whether a host is allowed in the Host header.
func (p *protected) isAllowed(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil && (p.Addresses || ip.Unmap().IsLoopback()) {
		return true
	}
	return host == "localhost" || slices.Contains(p.Hosts, host) || slices.Contains(p.Hosts, "*")
}

// hostOf returns the host of a Host header in lower case, without port, brackets and trailing dot.
func hostOf(s string) string {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"), "."))
}

// isProbe reports whether a path is a health check of orchestrators and load balancers, which
// reveals nothing else.
func isProbe(path string) bool { return path == "/health" || path == "/ready" || path == "/ping" }
