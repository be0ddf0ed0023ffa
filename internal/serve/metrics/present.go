package metrics

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lorafuse/lorafuse/internal/serve/batching"
)

// present collects the current state of an engine. It keeps no old series: adapters have a single
// series, regardless of how many have been loaded.
type present struct {
	stats   func() batching.Stats
	devices func() []batching.DeviceStats

	running, waiting, usage, cache, adapters *prometheus.Desc
	preemptions, queries, hits               *prometheus.Desc
	device                                   deviceSeries

	mu          sync.Mutex
	labelValues [3]string // label values of the adapter series
	changed     time.Time // time of their last change
}

func newPresent(stats func() batching.Stats, devices func() []batching.DeviceStats, labels prometheus.Labels) *present {
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, variable, labels)
	}
	return &present{
		stats:       stats,
		devices:     devices,
		device:      newDeviceSeries(labels),
		running:     desc("num_requests_running", "Requests that are being answered."),
		waiting:     desc("num_requests_waiting", "Requests that wait to be begun."),
		usage:       desc("kv_cache_usage_perc", "Part of the cache that texts under way have, 1 is all."),
		preemptions: desc("num_preemptions_total", "Times that a text had to give its pages to others and was computed again."),
		queries:     desc("prefix_cache_queries_total", "Tokens of prompts that were looked for in the cache."),
		hits:        desc("prefix_cache_hits_total", "Tokens of prompts that were found in the cache."),
		cache:       desc("cache_config_info", "The pages of the cache.", "block_size", "num_gpu_blocks"),
		// Inference routers read two labels and the value, and no other series.
		adapters: prometheus.NewDesc(prefix+"lora_requests_info", "Unix time since when the adapters are these.", []string{"max_lora", "running_lora_adapters", "waiting_lora_adapters"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (p *present) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.running, p.waiting, p.usage, p.preemptions, p.queries, p.hits, p.cache, p.adapters} {
		out <- d
	}
	p.device.describe(out)
}

// Collect implements prometheus.Collector.
func (p *present) Collect(out chan<- prometheus.Metric) {
	s := p.stats()
	gauge, sum := senders(out)
	count := func(d *prometheus.Desc, n uint64) { sum(d, float64(n)) }
	gauge(p.running, requests(s.Running))
	gauge(p.waiting, requests(s.Waiting))
	gauge(p.usage, usage(s))
	count(p.preemptions, s.Preemptions)
	count(p.queries, s.Pages.Queries*uint64(s.PageRows))
	count(p.hits, s.Pages.Hits*uint64(s.PageRows))
	gauge(p.cache, 1, strconv.Itoa(s.PageRows), strconv.Itoa(s.Pages.Pages))
	said, since := p.since(s)
	gauge(p.adapters, float64(since.UnixNano())/1e9, said[:]...)
	if p.devices != nil {
		p.device.collect(out, p.devices())
	}
}

// usage returns the part of the cache that texts under way have.
func usage(s batching.Stats) float64 { return float64(s.Pages.Used) / float64(max(s.Pages.Pages, 1)) }

// since returns the label values of the adapter series, and the time of their last change.
func (p *present) since(s batching.Stats) (said [3]string, changed time.Time) {
	said = [3]string{strconv.Itoa(s.MaxResident), list(s.Resident), list(adapters(s.Waiting))}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed.IsZero() || said != p.labelValues {
		p.labelValues, p.changed = said, time.Now()
	}
	return said, p.changed
}

func requests(counts []batching.AdapterCount) float64 {
	n := 0
	for _, c := range counts {
		n += c.Requests
	}
	return float64(n)
}

func adapters(counts []batching.AdapterCount) (names []string) {
	for _, c := range counts {
		if c.Adapter != "" {
			names = append(names, c.Adapter)
		}
	}
	return names
}

// list joins names in a label, separated by commas. The registry allows no name with a comma.
func list(names []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ",")
}
