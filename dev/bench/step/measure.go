package step

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/internal/train"
	_ "github.com/lorafuse/lorafuse/internal/train/task" // the tasks of runs
	"github.com/lorafuse/lorafuse/train/config"
)

// Measure runs one round of lorafuse: it trains as lorafuse train would and writes an answer. [Options.Self] starts
// it.
func Measure(ctx context.Context, w io.Writer, text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("step: the order: %w", err)
	}
	keys := map[string]any{
		"model": o.Model, "output_dir": o.Out, "data": map[string]any{"train": o.Rows, "max_length": o.Length},
		"adapter":    map[string]any{"r": o.Rank, "lora_alpha": 2 * o.Rank, "target_modules": "all-linear"},
		"batch_size": o.Batch, "steps": o.Steps + warmUp, "learning_rate": 1e-4, "schedule": "constant", "backend": backendName(o.Backend),
		"threads": o.Threads, "precision": o.Precision, "save_steps": 0, "log": map[string]any{"tensorboard": false, "plot": false},
	}
	if o.Quantize != "" {
		keys["quantize"] = o.Quantize
	}
	settings, err := json.Marshal(keys) // JSON is YAML
	if err != nil {
		return fmt.Errorf("step: %w", err)
	}
	c, err := config.Parse("bench", settings)
	if err != nil {
		return err
	}
	var a answer
	last := time.Time{}
	r, err := train.New(ctx, c, train.Observer{Step: func(train.Report) {
		now := time.Now()
		a.Seconds = append(a.Seconds, now.Sub(last).Seconds())
		last = now
	}})
	if err != nil {
		return err
	}
	defer r.Close()
	last = time.Now()
	a.FirstStep = last.UnixNano()
	if _, err := r.Train(ctx); err != nil {
		return err
	}
	a.PeakRSS = bench.PeakRSS()
	return json.NewEncoder(w).Encode(a)
}

func backendName(name string) string {
	if name == "" {
		return "auto"
	}
	return name
}
