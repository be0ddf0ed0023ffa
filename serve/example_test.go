package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/serve"
)

// A model and one of its adapters, for any client of OpenAI's API.
func Example() {
	ctx := context.Background()
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Open("../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	engine, err := batching.New(ctx, dev, m, batching.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	if _, err := engine.Adapters().Load(ctx, "support", "../testdata/lm/llama/adapters/lora"); err != nil {
		log.Fatal(err)
	}
	s, err := serve.New(serve.Options{Engine: engine, Model: m, Name: "small", MaxLength: engine.MaxLength(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	listener := httptest.NewServer(s) // or http.ListenAndServe(":8000", s)
	defer listener.Close()

	resp, err := http.Post(listener.URL+"/v1/completions", "application/json", strings.NewReader(`{"model": "support", "prompt": "Once", "max_tokens": 8, "ignore_eos": true}`))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Object, Model string
		Usage         map[string]any
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		log.Fatal(err)
	}
	fmt.Println(resp.Status, answer.Object, answer.Model, answer.Usage["completion_tokens"])
	// Output: 200 OK text_completion support 8
}
