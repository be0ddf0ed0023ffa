package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Server answers GET /metrics in Prometheus' text format.
type Server struct {
	http   *http.Server
	listen net.Listener
	done   chan error
}

// Serve listens on addr, such as ":9400" or "127.0.0.1:0", and serves samples of m together with the metrics of run.
// run may be nil; it is called from other goroutines.
func Serve(addr string, m *Meter, run func() []Metric) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		var metrics []Metric
		if run != nil {
			metrics = run()
		}
		_ = WritePrometheus(w, m.Read(), metrics...) // the client has disconnected
	})
	s := &Server{
		http:   &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second},
		listen: l,
		done:   make(chan error, 1),
	}
	go func() { s.done <- s.http.Serve(l) }()
	return s, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.listen.Addr().String() }

// Close ends the server. Answers under way have a moment to end.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) { // somebody has connected and asks nothing
		err = s.http.Close()
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
