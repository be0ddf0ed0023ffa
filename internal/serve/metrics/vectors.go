package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Vectors holds the metrics of an embedding server.
type Vectors struct {
	page    http.Handler
	running prometheus.Gauge
	whole   prometheus.Observer
}

// NewVectors returns the metrics of an embedding server: request durations and the resources of the
// process.
func NewVectors(model string) *Vectors {
	r := prometheus.NewRegistry()
	f := factory{r, prometheus.Labels{"model_name": model, "engine": engine}}
	v := &Vectors{
		page:    promhttp.HandlerFor(r, promhttp.HandlerOpts{}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "num_requests_running", Help: "Requests that are being answered, or wait for it.", ConstLabels: f.labels}),
		whole:   f.histogram("e2e_request_latency_seconds", "Time from a request to the end of its answer.", requestBuckets),
	}
	r.MustRegister(v.running, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return v
}

// ServeHTTP writes the metrics in Prometheus' text format.
func (v *Vectors) ServeHTTP(w http.ResponseWriter, r *http.Request) { v.page.ServeHTTP(w, r) }

// Handler returns a handler that calls h and counts its embeddings requests.
func (v *Vectors) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/embeddings" {
			v.running.Inc()
			defer v.running.Dec()
			defer func(came time.Time) { observe(v.whole, time.Since(came)) }(time.Now())
		}
		h.ServeHTTP(w, r)
	})
}
