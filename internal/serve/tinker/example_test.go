package tinker_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/tinker"
)

// A model that clients of Tinker train and sample from.
func Example() {
	ctx := context.Background()
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Open("../../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	engine, err := batching.New(ctx, dev, m, batching.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	h := engine.Beside()
	defer h.Close()
	sessions, err := tinker.NewSessions(h)
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "tinker")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := tinker.New(tinker.Options{
		Engine: engine, Trainer: sessions, Model: m, Name: "tiny", MaxLength: engine.MaxLength(), Dir: dir, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	listener := httptest.NewServer(s) // TINKER_BASE_URL
	defer listener.Close()

	resp, err := http.Get(listener.URL + "/api/v1/get_server_capabilities")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(body))
	// Output: {"supported_models":[{"max_context_length":128,"model_name":"tiny","sampleable":true,"trainable":true}]}
}
