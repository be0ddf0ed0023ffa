package traces_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/traces"
)

func Example() {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var said message
		if err := json.NewDecoder(r.Body).Decode(&said); err != nil {
			fmt.Println(err)
			return
		}
		for _, s := range said.ResourceSpans[0].ScopeSpans[0].Spans {
			fmt.Println(s.Name)
		}
	}))
	defer collector.Close()
	t, err := traces.New(traces.Options{URL: collector.URL, Model: "llama"})
	if err != nil {
		fmt.Println(err)
		return
	}
	submit := t.Watch(played(nil, batching.Token{Finish: generate.FinishEOS})) // of a batching.Engine
	h := t.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for range submit(r.Context(), batching.Request{}) {
		}
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/completions", nil))
	if err := t.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// queue
	// prefill
	// decode
	// POST /v1/completions
}
