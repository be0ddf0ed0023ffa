package metrics_test

import (
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/metrics"
)

func Example() {
	m := metrics.New(metrics.Options{Model: "llama", MaxLength: 4096, Stats: func() batching.Stats {
		return batching.Stats{Running: []batching.AdapterCount{{Adapter: "sql", Requests: 3}}, Resident: []string{"sql", "support"}, MaxResident: 8}
	}})
	m.Step(batching.Step{Tokens: 17})
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "vllm:num_requests") || strings.HasPrefix(line, "vllm:iteration_tokens_total_sum") {
			fmt.Print(line)
		}
	}
	// Output:
	// vllm:iteration_tokens_total_sum{engine="0",model_name="llama"} 17
	// vllm:num_requests_running{engine="0",model_name="llama"} 3
	// vllm:num_requests_waiting{engine="0",model_name="llama"} 0
}
