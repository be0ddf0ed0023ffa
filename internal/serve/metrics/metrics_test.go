package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/metrics"
	"github.com/lorafuse/lorafuse/internal/serve/pages"
	"github.com/lorafuse/lorafuse/internal/serve/share"
)

func page(m *metrics.Metrics) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w
}

// families is what Prometheus reads there.
func families(t testing.TB, m *metrics.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	w := page(m)
	require.Equal(t, 200, w.Code)
	require.Contains(t, w.Header().Get("Content-Type"), "text/plain; version=0.0.4")
	p := expfmt.NewTextParser(model.LegacyValidation)
	all, err := p.TextToMetricFamilies(w.Body)
	require.NoError(t, err)
	return all
}

func newMetrics(s batching.Stats) *metrics.Metrics {
	return metrics.New(metrics.Options{Model: "base", MaxLength: 2048, Stats: func() batching.Stats { return s }})
}

// played is a submit whose tokens come one after the other, with an error at the end,
// if there is one.
func played(wait time.Duration, err error, tokens ...batching.Token) batching.Submit {
	return func(context.Context, batching.Request) iter.Seq2[batching.Token, error] {
		return func(yield func(batching.Token, error) bool) {
			for _, t := range tokens {
				time.Sleep(wait)
				if !yield(t, nil) {
					return
				}
			}
			if err != nil {
				yield(batching.Token{}, err)
			}
		}
	}
}

func request(prompt, answers int) batching.Request {
	return batching.Request{Prompt: make([]int32, prompt), Answers: make([]generate.GenerateOptions, answers)}
}

func drain(ctx context.Context, s batching.Submit, r batching.Request, most int) (n int, err error) {
	for _, err := range s(ctx, r) {
		if err != nil {
			return n, err
		}
		if n++; n == most {
			break
		}
	}
	return n, nil
}

// counts takes names of adapters, each with a number of requests behind it.
func counts(pairs ...any) (all []batching.AdapterCount) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, batching.AdapterCount{Adapter: pairs[i].(string), Requests: pairs[i+1].(int)})
	}
	return all
}

func counter(f *dto.MetricFamily) float64 { return f.GetMetric()[0].GetCounter().GetValue() }
func gauge(f *dto.MetricFamily) float64   { return f.GetMetric()[0].GetGauge().GetValue() }

// finished gives the answers that have ended, by the reason.
func finished(t testing.TB, m *metrics.Metrics) map[string]float64 {
	all := map[string]float64{}
	for _, x := range families(t, m)["vllm:request_success_total"].GetMetric() {
		all[labels(x)["finished_reason"]] = x.GetCounter().GetValue()
	}
	return all
}

func labels(m *dto.Metric) map[string]string {
	all := map[string]string{}
	for _, l := range m.GetLabel() {
		all[l.GetName()] = l.GetValue()
	}
	return all
}

// A request counts by what passes: its tokens, and the times of its answers.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(batching.Stats{})
		times := batching.Times{Cached: 32, Queued: 2 * time.Second, Prefill: time.Second, Decode: 600 * time.Millisecond}
		watched := m.Watch(played(200*time.Millisecond, nil,
			batching.Token{}, batching.Token{}, batching.Token{Answer: 1, Finish: generate.FinishLength, Times: times},
			batching.Token{}, batching.Token{Finish: generate.FinishEOS, Times: times},
		))
		n, err := drain(t.Context(), watched, request(40, 2), -1)
		require.NoError(t, err)
		require.Equal(t, 5, n)
		m.Step(batching.Step{Tokens: 48, Prompt: 40})
		m.Step(batching.Step{Tokens: 3})

		all := families(t, m)
		assert.Equal(t, 40., counter(all["vllm:prompt_tokens_total"]), "once for both answers")
		assert.Equal(t, 5., counter(all["vllm:generation_tokens_total"]))
		assert.Equal(t, map[string]float64{"stop": 1, "length": 1, "abort": 0, "error": 0}, finished(t, m))
		for name, want := range map[string]struct {
			count uint64
			sum   float64
		}{
			"time_to_first_token_seconds":           {2, 6},
			"inter_token_latency_seconds":           {3, .2 + .4 + .2},
			"request_time_per_output_token_seconds": {1, .2},
			"e2e_request_latency_seconds":           {2, 7.2},
			"request_queue_time_seconds":            {2, 4},
			"request_prefill_time_seconds":          {2, 2},
			"request_decode_time_seconds":           {2, 1.2},
			"request_prompt_tokens":                 {1, 40},
			"request_generation_tokens":             {2, 5},
			"iteration_tokens_total":                {2, 51},
		} {
			f := all["vllm:"+name]
			require.NotNil(t, f, name)
			require.Len(t, f.GetMetric(), 1, name)
			h := f.GetMetric()[0]
			assert.Equal(t, map[string]string{"model_name": "base", "engine": "0"}, labels(h), name)
			assert.Equal(t, want.count, h.GetHistogram().GetSampleCount(), name)
			assert.InDelta(t, want.sum, h.GetHistogram().GetSampleSum(), 1e-9, name)
		}
		var bounds []float64
		for _, b := range all["vllm:request_prompt_tokens"].GetMetric()[0].GetHistogram().GetBucket() {
			bounds = append(bounds, b.GetUpperBound())
		}
		assert.Equal(t, []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000}, bounds[:11])
		assert.Len(t, bounds, 12, "and no bound")
	})
}

// Answers that got no last token have ended too.
func TestWatchEnds(t *testing.T) {
	m := newMetrics(batching.Stats{})
	end := batching.Token{Finish: generate.FinishStop}
	n, err := drain(t.Context(), m.Watch(played(0, nil, batching.Token{}, batching.Token{}, end)), request(3, 1), 2)
	require.NoError(t, err)
	require.Equal(t, 2, n, "nobody wants more")
	assert.Equal(t, map[string]float64{"stop": 0, "length": 0, "abort": 1, "error": 0}, finished(t, m))

	_, err = drain(t.Context(), m.Watch(played(0, batching.ErrQueue)), request(3, 1), -1)
	require.ErrorIs(t, err, batching.ErrQueue)
	assert.Equal(t, map[string]float64{"stop": 0, "length": 0, "abort": 1, "error": 0}, finished(t, m), "it was not taken")

	_, err = drain(t.Context(), m.Watch(played(0, errors.New("broken"))), request(3, 1), -1)
	require.EqualError(t, err, "broken")
	assert.Equal(t, map[string]float64{"stop": 0, "length": 0, "abort": 1, "error": 1}, finished(t, m))
	assert.Equal(t, 3., counter(families(t, m)["vllm:prompt_tokens_total"]), "of what was begun")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = drain(ctx, m.Watch(played(0, errors.New("ended"), end)), request(3, 2), -1)
	require.EqualError(t, err, "ended")
	assert.Equal(t, map[string]float64{"stop": 1, "length": 0, "abort": 2, "error": 1}, finished(t, m))
}

func TestPresent(t *testing.T) {
	all := families(t, newMetrics(batching.Stats{
		Running: counts("", 1, "a", 2), Waiting: counts("b", 2), Preemptions: 7, PageRows: 16,
		Pages: pages.Stats{Pages: 40, Used: 10, Cached: 20, Free: 10, Queries: 5, Hits: 2},
	}))
	for name, want := range map[string]float64{"num_requests_running": 3, "num_requests_waiting": 2, "kv_cache_usage_perc": .25} {
		assert.Equal(t, want, gauge(all["vllm:"+name]), name)
		assert.Equal(t, map[string]string{"model_name": "base", "engine": "0"}, labels(all["vllm:"+name].GetMetric()[0]), name)
	}
	for name, want := range map[string]float64{"num_preemptions_total": 7, "prefix_cache_queries_total": 80, "prefix_cache_hits_total": 32} {
		assert.Equal(t, want, counter(all["vllm:"+name]), name)
	}
	cache := all["vllm:cache_config_info"].GetMetric()
	require.Len(t, cache, 1)
	assert.Equal(t, 1., cache[0].GetGauge().GetValue())
	assert.Equal(t, "16", labels(cache[0])["block_size"])
	assert.Equal(t, "40", labels(cache[0])["num_gpu_blocks"])
	assert.NotNil(t, all["go_goroutines"])
	assert.Zero(t, gauge(families(t, newMetrics(batching.Stats{}))["vllm:kv_cache_usage_perc"]), "without a page")
}

// Series of devices have their names, and a device that is lost is down.
func TestDevices(t *testing.T) {
	devices := []batching.DeviceStats{{Device: "cuda:0", Queued: 70, Stats: batching.Stats{
		Running: counts("", 1, "a", 2), Waiting: counts("b", 2), Resident: []string{"a", "b"}, Pages: pages.Stats{Pages: 40, Used: 10},
		Time: share.Used{Steps: 9, Step: 3 * time.Second, Slices: 4, Slice: 2500 * time.Millisecond, Idle: time.Minute},
	}}, {Device: "cuda:1", Lost: errors.New("lost")}}
	m := metrics.New(metrics.Options{Model: "base", Stats: func() batching.Stats { return batching.Stats{} }, Devices: func() []batching.DeviceStats { return devices }})
	var lines []string
	for line := range strings.Lines(page(m).Body.String()) {
		if strings.HasPrefix(line, "lorafuse:") && !strings.Contains(line, "sampler_gap") {
			lines = append(lines, strings.ReplaceAll(strings.TrimSpace(line), `,engine="0",model_name="base"`, ""))
		}
	}
	assert.Equal(t, []string{
		`lorafuse:device_adapters{device="cuda:0"} 2`, `lorafuse:device_adapters{device="cuda:1"} 0`,
		`lorafuse:device_kv_cache_usage_perc{device="cuda:0"} 0.25`, `lorafuse:device_kv_cache_usage_perc{device="cuda:1"} 0`,
		`lorafuse:device_queued_tokens{device="cuda:0"} 70`, `lorafuse:device_queued_tokens{device="cuda:1"} 0`,
		`lorafuse:device_requests_running{device="cuda:0"} 3`, `lorafuse:device_requests_running{device="cuda:1"} 0`,
		`lorafuse:device_requests_waiting{device="cuda:0"} 2`, `lorafuse:device_requests_waiting{device="cuda:1"} 0`,
		`lorafuse:device_up{device="cuda:0"} 1`, `lorafuse:device_up{device="cuda:1"} 0`,
		`lorafuse:serving_seconds_total{device="cuda:0"} 3`, `lorafuse:serving_seconds_total{device="cuda:1"} 0`,
		`lorafuse:training_seconds_total{device="cuda:0",while="idle"} 60`, `lorafuse:training_seconds_total{device="cuda:0",while="serving"} 2.5`,
		`lorafuse:training_seconds_total{device="cuda:1",while="idle"} 0`, `lorafuse:training_seconds_total{device="cuda:1",while="serving"} 0`,
		`lorafuse:training_slices_total{device="cuda:0"} 4`, `lorafuse:training_slices_total{device="cuda:1"} 0`,
	}, lines)
}

// routed is what a router makes of the page: it takes the newest series that names an
// adapter, and splits its labels at commas.
func routed(t testing.TB, m *metrics.Metrics) (series int, since time.Time, most string, running, waiting []string) {
	all := families(t, m)["vllm:lora_requests_info"].GetMetric()
	var newest *dto.Metric
	for _, x := range all {
		l := labels(x)
		if l["running_lora_adapters"] == "" && l["waiting_lora_adapters"] == "" {
			continue
		}
		if newest == nil || x.GetGauge().GetValue() > newest.GetGauge().GetValue() {
			newest = x
		}
	}
	if newest == nil {
		return len(all), time.Time{}, "", nil, nil
	}
	split := func(s string) []string {
		return slices.DeleteFunc(strings.Split(s, ","), func(s string) bool { return s == "" })
	}
	l, v := labels(newest), newest.GetGauge().GetValue()
	return len(all), time.UnixMilli(int64(v*1e3 + .5)), l["max_lora"], split(l["running_lora_adapters"]), split(l["waiting_lora_adapters"])
}

// There is one series of the adapters, whatever there was before, and its value says
// since when it is so.
func TestAdapters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := batching.Stats{MaxResident: 4}
		m := metrics.New(metrics.Options{Model: "base", Stats: func() batching.Stats { return s }})
		series, since, _, running, waiting := routed(t, m)
		assert.Equal(t, 1, series)
		assert.Zero(t, since)
		assert.Empty(t, append(running, waiting...))

		for i := range 1000 {
			time.Sleep(time.Second)
			s.Resident = []string{fmt.Sprintf("team/b@%d", i), "a"}
			s.Waiting = counts("", 3, "a", 1, "c", 2)
			changed := time.Now()
			if i%100 != 0 { // it is read, and so what is said of it moves on
				require.Equal(t, 1, strings.Count(page(m).Body.String(), "\nvllm:lora_requests_info{"))
				continue
			}
			for range 2 {
				series, since, most, running, waiting := routed(t, m)
				require.Equal(t, 1, series)
				require.Equal(t, changed.UnixMilli(), since.UnixMilli())
				require.Equal(t, "4", most)
				require.Equal(t, []string{"a", fmt.Sprintf("team/b@%d", i)}, running)
				require.Equal(t, []string{"a", "c"}, waiting)
				time.Sleep(time.Second)
			}
		}
		assert.Len(t, families(t, m)["vllm:lora_requests_info"].GetMetric()[0].GetLabel(), 3)
	})
}

// A server of vectors says how long requests take, and how many run.
func TestVectors(t *testing.T) {
	v := metrics.NewVectors("base")
	said := func() string {
		w := httptest.NewRecorder()
		v.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	h := v.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		assert.Contains(t, said(), "\nvllm:num_requests_running{engine=\"0\",model_name=\"base\"} 1\n")
	}))
	for range 3 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/embeddings", nil))
	}
	v.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/health", nil))
	assert.Contains(t, said(), "\nvllm:num_requests_running{engine=\"0\",model_name=\"base\"} 0\n")
	assert.Contains(t, said(), "\nvllm:e2e_request_latency_seconds_count{engine=\"0\",model_name=\"base\"} 3\n")
	assert.Contains(t, said(), "\ngo_goroutines ")
}

// Requests are counted while the page is read.
func TestConcurrent(t *testing.T) {
	m := newMetrics(batching.Stats{Resident: []string{"a"}})
	const clients, each = 8, 50
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range each {
				drain(t.Context(), m.Watch(played(0, nil, batching.Token{}, batching.Token{Finish: generate.FinishEOS})), request(2, 1), -1)
				m.Step(batching.Step{Tokens: 2})
			}
		})
	}
	for range 20 {
		families(t, m)
	}
	wg.Wait()
	all := families(t, m)
	assert.Equal(t, 2.*clients*each, counter(all["vllm:generation_tokens_total"]))
	assert.EqualValues(t, clients*each, all["vllm:iteration_tokens_total"].GetMetric()[0].GetHistogram().GetSampleCount())
}
