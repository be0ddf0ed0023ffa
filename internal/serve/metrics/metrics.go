// Package metrics exports server metrics for Prometheus and for Kubernetes inference routers, which
// read the same page. It uses vLLM's metric names if the meaning is the same.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lorafuse/lorafuse/internal/serve/batching"
)

// Metrics holds the metrics of one server. Requests are counted as they run (see [Metrics.Watch]);
// gauges are read when the page is scraped. All methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	page     http.Handler

	promptTokens, answerTokens prometheus.Counter
	finished                   map[string]prometheus.Counter // by reason

	firstToken, nextToken, perToken    prometheus.Observer
	whole, queued, prefilled, decoding prometheus.Observer
	prompts, answers, steps            prometheus.Observer
	samplerGap                         prometheus.Gauge
}

// Options describe the server.
type Options struct {
	Model     string                        // public name of the model
	MaxLength int                           // maximum number of tokens of a text
	Stats     func() batching.Stats         // current state of all engines together
	Devices   func() []batching.DeviceStats // current state of each; nil exports no series of devices
}

// engine is vLLM's label of an engine replica. Series with it are those of all devices together.
const engine = "0"

// New returns the metrics of a server that has not yet received a request.
func New(o Options) *Metrics {
	r := prometheus.NewRegistry()
	f := factory{r, prometheus.Labels{"model_name": o.Model, "engine": engine}}
	lengths := lengthBuckets(o.MaxLength)
	m := &Metrics{
		registry: r,
		page:     promhttp.HandlerFor(r, promhttp.HandlerOpts{}),

		promptTokens: f.counter("prompt_tokens_total", "Tokens of prompts of requests that have begun to be answered.", nil),
		answerTokens: f.counter("generation_tokens_total", "Tokens of answers.", nil),
		finished:     map[string]prometheus.Counter{},

		firstToken: f.histogram("time_to_first_token_seconds", "Time from a request to the first token of its answer.", firstTokenBuckets),
		nextToken:  f.histogram("inter_token_latency_seconds", "Time between two tokens of an answer.", nextTokenBuckets),
		perToken:   f.histogram("request_time_per_output_token_seconds", "Mean time between the tokens of an answer.", nextTokenBuckets),
		whole:      f.histogram("e2e_request_latency_seconds", "Time from a request to the end of its answer.", requestBuckets),
		queued:     f.histogram("request_queue_time_seconds", "Time that a request waited until it was begun.", requestBuckets),
		prefilled:  f.histogram("request_prefill_time_seconds", "Time from the beginning of a request to its first token.", requestBuckets),
		decoding:   f.histogram("request_decode_time_seconds", "Time from the first token of an answer to its last.", requestBuckets),
		prompts:    f.histogram("request_prompt_tokens", "Tokens of the prompt of a request.", lengths),
		answers:    f.histogram("request_generation_tokens", "Tokens of an answer.", lengths),
		steps:      f.histogram("iteration_tokens_total", "Tokens that were computed in one step, of prompts and of answers.", stepBuckets),
	}
	for _, reason := range reasons {
		m.finished[reason] = f.counter("request_success_total", "Answers that have ended, by the reason.", prometheus.Labels{"finished_reason": reason})
	}
	m.samplerGap = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: ownPrefix + "sampler_gap", ConstLabels: f.labels,
		Help: "Largest difference between sampled and trained log-probabilities in the last call of training that brought sampled ones.",
	})
	r.MustRegister(
		m.samplerGap, newPresent(o.Stats, o.Devices, f.labels),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// ServeHTTP writes the metrics in Prometheus' text format.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.page.ServeHTTP(w, r) }

// Step counts a step of the engine.
func (m *Metrics) Step(s batching.Step) { m.steps.Observe(float64(s.Tokens)) }

// SetSamplerGap records the gap between sampler and trainer of a call; see session.GapMetric.
func (m *Metrics) SetSamplerGap(gap float64) { m.samplerGap.Set(gap) }

// vLLM's buckets, so that both can be compared in one chart.
var (
	firstTokenBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	nextTokenBuckets  = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	requestBuckets    = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	stepBuckets       = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
)

// lengthBuckets returns the histogram buckets 1, 2, 5, 10, 20, … up to most.
func lengthBuckets(most int) []float64 {
	var b []float64
	for unit := 1; ; unit *= 10 {
		for _, n := range []int{unit, 2 * unit, 5 * unit} {
			if n > most {
				return b
			}
			b = append(b, float64(n))
		}
	}
}

// factory creates and registers metrics with the labels of a server.
type factory struct {
	registry *prometheus.Registry
	labels   prometheus.Labels
}

// Prefixes of metric names: for metrics of vLLM, and for metrics that vLLM does not have.
const (
	prefix    = "vllm:"
	ownPrefix = "lorafuse:"
)

func (f factory) counter(name, help string, more prometheus.Labels) prometheus.Counter {
	labels := prometheus.Labels{}
	for _, from := range []prometheus.Labels{f.labels, more} {
		for k, v := range from {
			labels[k] = v
		}
	}
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help, ConstLabels: labels})
	f.registry.MustRegister(c)
	return c
}

func (f factory) histogram(name, help string, buckets []float64) prometheus.Observer {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, ConstLabels: f.labels, Buckets: buckets})
	f.registry.MustRegister(h)
	return h
}
