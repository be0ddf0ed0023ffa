package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// steady are looks at a server that takes no more and no less.
func steady(n int) []look {
	looks := make([]look, n)
	for i := range looks {
		looks[i] = look{resident: 100 << 20, heap: float64(20+i%3) * (1 << 20), goroutines: float64(10 + i%5), files: 9, pages: .5, running: 3, series: 1}
	}
	looks[n-1].pages, looks[n-1].running = 0, 0
	return looks
}

// What grows is found, and nothing else.
func TestGrown(t *testing.T) {
	require.NoError(t, grown(steady(30)))
	require.ErrorContains(t, grown(steady(8)), "expected 9 or more")
	for word, edit := range map[string]func(i int, l *look){
		"RSS":        func(i int, l *look) { l.resident += float64(i) * (2 << 20) },
		"heap":       func(i int, l *look) { l.heap += float64(i) * (2 << 20) },
		"goroutines": func(i int, l *look) { l.goroutines += float64(i) },
		"open files": func(i int, l *look) { l.files += float64(i) },
		"pages":      func(_ int, l *look) { l.pages = .1 },
		"at the end": func(_ int, l *look) { l.waiting = 1 },
		"series":     func(_ int, l *look) { l.series = 2 },
	} {
		looks := steady(30)
		for i := range looks {
			edit(i, &looks[i])
		}
		require.ErrorContains(t, grown(looks), word)
	}
}

// A server is asked, looked at, and what it says is read.
func TestSoak(t *testing.T) {
	var asked, swaps atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			fmt.Fprintf(w, "# HELP go_goroutines x\ngo_goroutines 7\nprocess_resident_memory_bytes 1.5e+06\nvllm:request_success_total{finished_reason=\"stop\"} %d\nvllm:request_success_total{finished_reason=\"length\"} 0\nvllm:lora_requests_info{running_lora_adapters=\"a b\"} 1.7e9\n", asked.Load())
		case "/v1/completions":
			var body struct{ Model string }
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
			assert.Contains(t, []string{"", "a", swapped}, body.Model)
			asked.Add(1)
			if body.Model == swapped {
				w.WriteHeader(http.StatusNotFound)
			}
		default:
			assert.Contains(t, []string{"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}, r.URL.Path)
			swaps.Add(1)
		}
	}))
	defer s.Close()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"--url", s.URL, "--for", "300ms", "--every", "10ms", "--adapters", "a", "--swap", "b,c"}, &out), out.String())
	require.Positive(t, asked.Load())
	require.Positive(t, swaps.Load())
	require.GreaterOrEqual(t, strings.Count(out.String(), "\n"), 12)
	require.Contains(t, out.String(), " 1.4 ", "of memory")

	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()
	require.ErrorContains(t, run(t.Context(), []string{"--url", broken.URL}, &out), "404")
	require.Error(t, run(t.Context(), nil, &out))
}
