package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// door is where clients come in. It is open before there is anything to serve, so that
// a port that others have is known at once, and that who asks hears what is going on.
type door struct {
	listener net.Listener
	scheme   string // http or https
	server   *http.Server
	failed   chan error // gets why nobody can come in any more
	service  atomic.Pointer[service]
	inside   sync.RWMutex // requests read, so that whoever writes has waited for them
	cut      context.CancelFunc
}

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	mostHeader    = 64 << 10
	lastWords     = time.Second // for what clients are told whose requests are cut
)

// open listens.
func (f *serveFlags) open(log *slog.Logger) (*door, error) {
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
	d.server = &http.Server{
		Handler: d, TLSConfig: config, BaseContext: func(net.Listener) context.Context { return all },
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	go func() {
		var err error
		if config != nil {
			err = d.server.ServeTLS(l, "", "")
		} else {
			err = d.server.Serve(l)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			d.failed <- err
		}
	}()
	return d, nil
}

func (d *door) addr() *net.TCPAddr { return d.listener.Addr().(*net.TCPAddr) }

func (d *door) url() string { return d.scheme + "://" + d.listener.Addr().String() }

// admit lets clients have what there is from now on.
func (d *door) admit(s *service) { d.service.Store(s) }

// ServeHTTP has the service answer, once there is one.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.inside.RLock()
	defer d.inside.RUnlock()
	if s := d.service.Load(); s != nil {
		s.handler.ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/health" || r.URL.Path == "/ping" {
		w.WriteHeader(http.StatusOK)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "5")
	w.WriteHeader(http.StatusServiceUnavailable)
	io.WriteString(w, `{"error": {"message": "the model is being read", "type": "server_error", "param": null, "code": "loading"}}`+"\n")
}

// drain lets the requests that there are end, and no others begin. It fails where they
// have not ended in time; then they are cut, and their clients are told.
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

// close ends what is still under way, and waits for it.
func (d *door) close() {
	d.server.Close() // before, so that no answer looks whole
	d.cut()
	d.inside.Lock()
	defer d.inside.Unlock()
	d.service.Store(nil)
}
