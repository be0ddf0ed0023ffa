package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lorafuse/lorafuse/serve"
)

// door listens for clients. It opens before the service is ready, so that a port in use is detected at once
// and early clients get the startup status.
type door struct {
	listener net.Listener
	scheme   string // http or https
	server   *http.Server
	guarded  http.Handler // serve, for requests that the guard lets in
	failed   chan error   // receives the error that stopped the listener
	service  atomic.Pointer[service]
	inside   sync.RWMutex // requests hold the read lock, so that taking the write lock waits for them
	cut      context.CancelFunc
}

const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = time.Minute
	idleTimeout   = 2 * time.Minute
	mostHeader    = 64 << 10
	lastWords     = time.Second // for the error responses to clients whose requests are canceled
)

// open starts to listen. Clients must present one of the keys, if there are any.
func (f *serveFlags) open(k serverKeys, log *slog.Logger) (*door, error) {
	var config *tls.Config
	if f.tlsCert != "" {
		c, err := newCertificate(f.tlsCert, f.tlsKey, log)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		config = &tls.Config{GetCertificate: c.current, MinVersion: tls.VersionTLS12}
	}
	l, err := net.Listen("tcp", f.listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &failure{fmt.Errorf("--listen: another program listens on %s; take another port, or 0 for any that is free", f.listen)}
	}
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	all, cut := context.WithCancel(context.Background())
	d := &door{listener: l, scheme: "http", failed: make(chan error, 1), cut: cut}
	if config != nil {
		d.scheme = "https"
	}
	if d.guarded, err = f.guard(k, d.addr()).Protect(http.HandlerFunc(d.serve)); err != nil {
		return nil, errors.Join(fmt.Errorf("--allow-origin: %w", err), l.Close())
	}
	d.server = &http.Server{
		Handler: d, TLSConfig: config, BaseContext: func(net.Listener) context.Context { return all },
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeader, ConnContext: withFraming,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	go func() {
		var err error
		if config != nil {
			err = d.server.ServeTLS(l, "", "")
		} else {
			err = d.server.Serve(framedListener{l})
		}
		if !errors.Is(err, http.ErrServerClosed) {
			d.failed <- err
		}
	}()
	return d, nil
}

// guard returns the check of the Host and Origin headers of requests. A server that requires keys accepts any host on
// network addresses.
func (f *serveFlags) guard(k serverKeys, at *net.TCPAddr) serve.Guard {
	g := serve.Guard{Hosts: slices.Clone(f.allowedHosts), Addresses: !at.IP.IsLoopback(), Origins: f.origins}
	if host, _, err := net.SplitHostPort(f.listen); err == nil && host != "" {
		g.Hosts = append(g.Hosts, host)
	}
	if g.Addresses && len(k.users) > 0 {
		g.Hosts = append(g.Hosts, "*")
	}
	return g
}

func (d *door) addr() *net.TCPAddr { return d.listener.Addr().(*net.TCPAddr) }

func (d *door) url() string { return d.scheme + "://" + d.listener.Addr().String() }

// admit makes the service available to clients.
func (d *door) admit(s *service) { d.service.Store(s) }

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.inside.RLock()
	defer d.inside.RUnlock()
	if r.ContentLength != 0 { // the body of a request that is refused is read too
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	if isFramed(w, r) {
		d.guarded.ServeHTTP(w, r)
	}
}

// serve passes requests to the service once it is ready.
func (d *door) serve(w http.ResponseWriter, r *http.Request) {
	if s := d.service.Load(); s != nil {
		s.handler.ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/health" || r.URL.Path == "/ping" {
		w.WriteHeader(http.StatusOK)
		return
	}
	w.Header().Set("Retry-After", "5")
	writeError(w, http.StatusServiceUnavailable, "server_error", "loading", "the model is being read")
}

// writeError answers with an error in OpenAI's form.
func writeError(w http.ResponseWriter, status int, kind, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error": {"message": %q, "type": %q, "param": null, "code": %q}}`+"\n", message, kind, code)
}

// drain waits for the current requests and rejects new ones. If the requests do not end before the timeout, it cancels
// them, notifies their clients and returns an error.
func (d *door) drain(s *service, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := s.drain(ctx)
	if err == nil {
		err = d.server.Shutdown(ctx)
	}
	if err != nil {
		s.cut()
		ctx, cancel := context.WithTimeout(context.Background(), lastWords)
		defer cancel()
		d.server.Shutdown(ctx)
	}
	return err
}

// close cancels all remaining requests and waits for them.
func (d *door) close() {
	d.server.Close() // before, so that no answer looks whole
	d.cut()
	d.inside.Lock()
	defer d.inside.Unlock()
	d.service.Store(nil)
}
