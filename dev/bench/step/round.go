package step

import (
	"bytes"
	"context"
	_ "embed" // the peer's own part
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/safetensors"
)

// order is the task of a process in a round. It is passed as the last argument, as JSON.
type order struct {
	Model     string `json:"model"`
	Rows      string `json:"rows"` // file of token ids
	Out       string `json:"out"`
	Backend   string `json:"backend"`
	Precision string `json:"precision"`
	Quantize  string `json:"quantize,omitempty"`
	Compile   bool   `json:"compile,omitempty"` // by torch.compile
	Threads   int    `json:"threads"`
	Batch     int    `json:"batch"`
	Length    int    `json:"length"`
	Rank      int    `json:"rank"`
	Steps     int    `json:"steps"`
	Vocab     int    `json:"vocab"`
}

// warmUp is the number of steps per round that are not timed.
const warmUp = 2

// answer is the JSON output of a process.
type answer struct {
	FirstStep int64     `json:"first_step_ns"` // when the first step began, since 1970
	Seconds   []float64 `json:"seconds"`       // of all steps, warm-up first
	PeakRSS   int64     `json:"peak_rss"`
}

// runner makes the command of a round.
type runner interface{ command(order string) []string }

type own struct{ self []string }

func (o own) command(order string) []string {
	return append(o.self[:len(o.self):len(o.self)], order)
}

//go:embed torch_step.py
var script string

type peer struct{ python string }

func (p peer) command(order string) []string { return []string{p.python, "-c", script, order} }

// task makes the rounds of one program.
func (s *suite) task(steps, start *bench.Row, r runner, shape checkpoint.Shape, o order) bench.Task {
	return bench.Task{Row: steps, Begin: func(context.Context) (bench.Sampler, error) {
		return &round{r, o, steps, start}, writeModel(shape, o)
	}}
}

// writeModel writes the model and the rows if they do not exist.
func writeModel(shape checkpoint.Shape, o order) error {
	if _, err := os.Stat(o.Rows); err == nil {
		return nil
	}
	if err := shape.Write(o.Model); err != nil {
		return err
	}
	const steps = 16 // of other rows; then they begin again
	ids := make([]byte, 8*steps*o.Batch*o.Length)
	random := philox.NewStream(0, 0, 1)
	for i := range len(ids) / 8 {
		id := int(random.Uniform(uint64(i))*float32(o.Vocab-2)) + 2 // 0 ends a text, 1 pads one
		ids[8*i], ids[8*i+1], ids[8*i+2] = byte(id), byte(id>>8), byte(id>>16)
	}
	entry := func(name string) safetensors.Entry {
		return safetensors.Entry{Name: name, DType: safetensors.I64, Shape: []int{steps * o.Batch, o.Length}, Data: ids}
	}
	return safetensors.WriteFile(o.Rows, []safetensors.Entry{entry("input_ids"), entry("labels")}, nil)
}

// round samples a program: the median step of a new process.
type round struct {
	runner
	order       order
	row, starts *bench.Row
}

func (r *round) Close() error { return nil }

func (r *round) Sample(ctx context.Context) (float64, error) {
	text, err := json.Marshal(r.order)
	if err != nil {
		return 0, err
	}
	if err := os.RemoveAll(r.order.Out); err != nil {
		return 0, err
	}
	command := r.command(string(text))
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	began := time.Now()
	if err := c.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return 0, fmt.Errorf("%s: %w: %s", filepath.Base(command[0]), err, lines[len(lines)-1])
	}
	var a answer
	if err := json.Unmarshal(stdout.Bytes(), &a); err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Base(command[0]), err)
	}
	if len(a.Seconds) != r.order.Steps+warmUp {
		return 0, errors.New("answered with other steps than those asked for")
	}
	r.row.PeakRSS = max(r.row.PeakRSS, a.PeakRSS)
	r.starts.Seconds = append(r.starts.Seconds, max(1e-9, float64(a.FirstStep-began.UnixNano())/1e9))
	return bench.Quantile(a.Seconds[warmUp:], 0.5), nil
}
