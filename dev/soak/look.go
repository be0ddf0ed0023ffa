package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// look is a snapshot of a server's resources.
type look struct {
	at                        time.Duration
	resident, heap            float64 // bytes
	goroutines, files, pages  float64 // pages are the part of the cache in use
	running, waiting, answers float64
	series                    int // that name the adapters
}

// columns is the header of the table.
const columns = "   time    RSS MiB   heap MiB  goroutines  files   pages  running  waiting   answers"

func (l look) String() string {
	return fmt.Sprintf("%7s %10.1f %10.1f %11.0f %6.0f %7.3f %8.0f %8.0f %9.0f", l.at.Round(time.Second), l.resident/(1<<20), l.heap/(1<<20), l.goroutines, l.files, l.pages, l.running, l.waiting, l.answers)
}

// look reads the metrics of the server.
func (p *plan) look(at time.Duration) (look, error) {
	l := look{at: at}
	a, err := p.client.Get(p.url + "/metrics")
	if err != nil {
		return l, err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusOK {
		err = errors.New(a.Status)
	}
	if err != nil {
		return l, fmt.Errorf("/metrics: %w", err)
	}
	sums := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if i := strings.LastIndexByte(line, ' '); i >= 0 {
			value = strings.TrimSpace(line[i+1:])
		}
		name, _, _ = strings.Cut(name, "{")
		if name == "vllm:lora_requests_info" {
			l.series++
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			sums[name] += v
		}
	}
	l.resident, l.heap = sums["process_resident_memory_bytes"], sums["go_memstats_heap_inuse_bytes"]
	l.goroutines, l.files, l.pages = sums["go_goroutines"], sums["process_open_fds"], sums["vllm:kv_cache_usage_perc"]
	l.running, l.waiting, l.answers = sums["vllm:num_requests_running"], sums["vllm:num_requests_waiting"], sums["vllm:request_success_total"]
	return l, nil
}

// Permitted fluctuations: memory that the garbage collector has not freed yet, and a request or two that are ending.
const (
	slackBytes      = 12 << 20
	slackGoroutines = 8
	slackFiles      = 8
)

// grown returns an error if a resource grows: it compares the minimum in the last third of the time with the minimum
// in the second third. The first third is for one-time allocations. The last snapshot is taken when the server is
// idle.
func grown(looks []look) error {
	if len(looks) < 9 {
		return fmt.Errorf("%d looks at the server, expected 9 or more", len(looks))
	}
	idle := looks[len(looks)-1]
	third := len(looks) / 3
	middle, end := looks[third:2*third], looks[2*third:len(looks)-1]
	var wrong []error
	for _, x := range []struct {
		name  string
		of    func(look) float64
		slack float64
	}{
		{"RSS", func(l look) float64 { return l.resident }, slackBytes},
		{"heap", func(l look) float64 { return l.heap }, slackBytes},
		{"goroutines", func(l look) float64 { return l.goroutines }, slackGoroutines},
		{"open files", func(l look) float64 { return l.files }, slackFiles},
	} {
		before, now := least(middle, x.of), least(end, x.of)
		if now > before+x.slack {
			wrong = append(wrong, fmt.Errorf("%s: at least %.0f in the last third of the time, %.0f in the one before", x.name, now, before))
		}
	}
	if idle.pages != 0 || idle.running != 0 || idle.waiting != 0 {
		wrong = append(wrong, fmt.Errorf("at the end nothing runs, and in use are %v of the pages, %v requests run, %v wait", idle.pages, idle.running, idle.waiting))
	}
	if idle.goroutines > looks[0].goroutines+slackGoroutines {
		wrong = append(wrong, fmt.Errorf("%v goroutines at the end, %v at the beginning", idle.goroutines, looks[0].goroutines))
	}
	if idle.series != 1 {
		wrong = append(wrong, fmt.Errorf("%d series of vllm:lora_requests_info, expected 1", idle.series))
	}
	return errors.Join(wrong...)
}

func least(looks []look, of func(look) float64) float64 {
	n := of(looks[0])
	for _, l := range looks {
		n = min(n, of(l))
	}
	return n
}
