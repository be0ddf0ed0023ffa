package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lorafuse/lorafuse/internal/serve/batching"
)

// deviceSeries are the series with a label device, which vLLM does not have.
type deviceSeries struct {
	up, running, waiting, queued, adapters, usage *prometheus.Desc
	serving, training, slices                     *prometheus.Desc
}

func newDeviceSeries(labels prometheus.Labels) deviceSeries {
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc(ownPrefix+name, help, append([]string{"device"}, variable...), labels)
	}
	return deviceSeries{
		up:       desc("device_up", "1 while the device works, 0 once it is lost."),
		running:  desc("device_requests_running", "Requests that the device is answering."),
		waiting:  desc("device_requests_waiting", "Requests that wait to be begun by the device."),
		queued:   desc("device_queued_tokens", "Tokens that a new request waits for on the device."),
		adapters: desc("device_adapters", "Adapters on the device."),
		usage:    desc("device_kv_cache_usage_perc", "Part of the device's cache that texts under way have, 1 is all."),
		serving:  desc("serving_seconds_total", "Time of steps of serving, without what was trained in them."),
		training: desc("training_seconds_total", "Time of training beside serving: of slices that serving waited for, and while there was nothing to serve.", "while"),
		slices:   desc("training_slices_total", "Slices of time that training had behind steps of serving."),
	}
}

func (d deviceSeries) describe(out chan<- *prometheus.Desc) {
	for _, x := range []*prometheus.Desc{d.up, d.running, d.waiting, d.queued, d.adapters, d.usage, d.serving, d.training, d.slices} {
		out <- x
	}
}

func (d deviceSeries) collect(out chan<- prometheus.Metric, devices []batching.DeviceStats) {
	gauge, sum := senders(out)
	for _, s := range devices {
		up := 1.
		if s.Lost != nil {
			up = 0
		}
		gauge(d.up, up, s.Device)
		gauge(d.running, requests(s.Running), s.Device)
		gauge(d.waiting, requests(s.Waiting), s.Device)
		gauge(d.queued, float64(s.Queued), s.Device)
		gauge(d.adapters, float64(len(s.Resident)), s.Device)
		gauge(d.usage, usage(s.Stats), s.Device)
		sum(d.serving, s.Time.Step.Seconds(), s.Device)
		sum(d.training, s.Time.Slice.Seconds(), s.Device, "serving")
		sum(d.training, s.Time.Idle.Seconds(), s.Device, "idle")
		sum(d.slices, float64(s.Time.Slices), s.Device)
	}
}

// senders return functions that collect a gauge and a counter.
func senders(out chan<- prometheus.Metric) (gauge, sum func(d *prometheus.Desc, v float64, labels ...string)) {
	send := func(kind prometheus.ValueType) func(*prometheus.Desc, float64, ...string) {
		return func(d *prometheus.Desc, v float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
		}
	}
	return send(prometheus.GaugeValue), send(prometheus.CounterValue)
}
