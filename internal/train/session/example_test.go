package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/all"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train/session"
)

// Have a model learn one text, step by step, and save the adapter.
func Example() {
	if err := learn(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// loss fell: true
	// adapter_config.json
	// adapter_model.safetensors
	// optimizer.safetensors
	// session.json
}

func learn() error {
	ctx := context.Background()
	m, err := model.Open("../../../testdata/lm/llama/model")
	if err != nil {
		return err
	}
	defer m.Close()
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		return err
	}
	defer dev.Close()
	r := host.Open(dev, m)
	defer r.Close()
	s, err := session.NewGroup(r).New(ctx, session.Options{Rank: 4, Attention: true, MLP: true})
	if err != nil {
		return err
	}
	data := []session.Datum{{Tokens: []int32{3, 5, 7}, Targets: []int32{5, 7, 9}}}
	adam := session.DefaultAdam()
	adam.LearningRate = 0.01
	var sums []float64
	for range 5 {
		out, err := s.ForwardBackward(ctx, data, session.Loss{Name: "cross_entropy"}, false)
		if err != nil {
			return err
		}
		sums = append(sums, out.Metrics["loss:sum"])
		if _, err := s.OptimStep(ctx, adam); err != nil {
			return err
		}
	}
	fmt.Println("loss fell:", sums[4] < sums[0])

	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	saved := filepath.Join(dir, "saved")
	if err := s.Save(ctx, saved, true); err != nil {
		return err
	}
	files, _ := filepath.Glob(filepath.Join(saved, "*"))
	for _, f := range files {
		fmt.Println(filepath.Base(f))
	}
	return nil
}
