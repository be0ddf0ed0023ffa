package large

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/task/flowmatching"
)

// stepGroup is the group of lorafuse's and torch's steps.
const stepGroup = "Training step"

// steps returns the tasks for the language model: lorafuse, and unmodified PEFT with adapters of both types and no
// autocast.
func (s *suite) steps() []bench.Task {
	row := func(program, name string) *bench.Row {
		return &bench.Row{
			Group: stepGroup, Program: program, Name: name, Tokens: float64(s.Rows * s.Length), Flops: s.flops(),
			Input: fmt.Sprintf("%s, %d × %d tokens, r=%d", s.shape, s.Rows, s.Length, s.Rank),
		}
	}
	if s.Torch != nil {
		var tasks []bench.Task
		for _, adapters := range []string{"f32", "bf16"} {
			for _, checkpointing := range []bool{false, true} {
				name := adapters + " adapters"
				if checkpointing {
					name += ", checkpointing"
				}
				tasks = append(tasks, bench.Task{Row: row(torch, name), Foreign: true, Begin: func(ctx context.Context) (bench.Sampler, error) {
					return s.Torch.Begin(ctx, map[string]any{"op": "step", "hidden": s.shape.Hidden, "layers": s.shape.Layers, "inter": s.shape.Inter, "heads": s.shape.Heads,
						"kv_heads": s.shape.KVHeads, "vocab": s.shape.Vocab, "rows": s.Rows, "length": s.Length, "rank": s.Rank, "adapters": adapters, "checkpointing": checkpointing, "device": s.machine.Info.Backend})
				}})
			}
		}
		return tasks
	}
	mine := row(ours, "bf16")
	s.machine.Hold(mine, backend.BF16)
	return []bench.Task{{Row: mine, Marks: []bench.Mark{{Name: bench.TargetStep, Row: mine.ID(), FlopPeak: bench.LeastStep}}, Begin: func(ctx context.Context) (bench.Sampler, error) {
		m, err := s.language()
		if err != nil {
			return nil, err
		}
		t, err := s.training(ctx, mine, m, train.EngineOptions{MaxTokens: s.Rows * s.Length})
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		random := philox.NewStream(0, 0, 1)
		ids := make([]int32, s.Length)
		for i := range s.Rows {
			for k := range ids {
				ids[k] = int32(random.Uniform(uint64(i*s.Length+k)) * float32(s.shape.Vocab-1))
			}
			t.batch.Add(ids, ids)
		}
		return t, nil
	}}}
}

// flops returns the minimum floating-point operations of a step, counted as bench step counts them.
func (s *suite) flops() float64 {
	pairs := s.Rows * s.Length * (s.Length + 1) / 2
	return 4*float64(s.shape.LinearParams())*float64(s.Rows*s.Length) + 12*float64(pairs)*float64(s.shape.Hidden)*float64(s.shape.Layers)
}

// textTokens is the number of tokens of a FLUX prompt.
const textTokens = 512

// pictures returns the task of the FLUX block.
func (s *suite) pictures() []bench.Task {
	if s.Torch != nil {
		return nil
	}
	side, h := s.Side/16, s.Flux.Hidden() // a token is 16 × 16 pixels
	tokens := side*side + textTokens
	row := &bench.Row{
		Group: "Training step of a double block of FLUX", Program: ours, Name: "bf16", Tokens: float64(tokens),
		Input: fmt.Sprintf("%d channels, %d × %d pixels, %d tokens of text, r=%d", h, s.Side, s.Side, textTokens, s.Rank),
		// Each token passes through 12 matrices of the block and attends to all others.
		Flops: 4*12*float64(h)*float64(h)*float64(tokens) + 12*float64(tokens)*float64(tokens)*float64(h),
	}
	s.machine.Hold(row, backend.BF16)
	return []bench.Task{{Row: row, Begin: func(ctx context.Context) (bench.Sampler, error) {
		dir := filepath.Join(s.dir, "flux")
		if err := s.Flux.WriteEmpty(dir); err != nil {
			return nil, err
		}
		m, err := model.Open(dir)
		if err != nil {
			return nil, err
		}
		random := philox.NewStream(0, 0, 2)
		normal := func(n int) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(random.Normal(uint64(i)))
			}
			return x
		}
		size := 16 * 4 * side * side
		sample := dit.Sample{
			Latent: dit.Latent{Channels: 16, Frames: 1, Height: 2 * side, Width: 2 * side, Values: normal(size)}, Target: normal(size), Weight: 1,
			Prompt:   dit.Prompt{Features: s.Flux.Text, Values: normal(s.Flux.Text * textTokens), Pooled: normal(s.Flux.Pooled)},
			Timestep: 500, Guidance: 1,
		}
		f := m.Config.Family.(dit.Transformer)
		t, err := s.training(ctx, row, m, train.EngineOptions{Loss: flowmatching.Loss(f.Bounds(1, sample)), MaxTokens: 1})
		if err == nil {
			err = f.Arrays(&t.batch, []dit.Sample{sample})
		}
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		return t, nil
	}}}
}

// training samples steps.
type training struct {
	engine *train.Engine
	model  *model.Model
	batch  data.Batch
	step   int
}

// training plans steps that recompute as many layers as needed to fit into memory.
func (s *suite) training(ctx context.Context, row *bench.Row, m *model.Model, o train.EngineOptions) (*training, error) {
	state, err := s.adapter(m)
	if err != nil {
		return nil, err
	}
	o.Beta1, o.Beta2, o.Eps, o.MaxGradNorm = 0.9, 0.999, 1e-8, 1
	const quarters = 4
	for q := range quarters + 1 {
		if q > 0 {
			o.Checkpointing, o.Recomputed = true, (s.shape.Layers*q+quarters-1)/quarters
			row.Detail = fmt.Sprintf("%d layers are recomputed", o.Recomputed)
		}
		var e *train.Engine
		if e, err = train.NewEngine(ctx, s.dev, m, state, o); err == nil {
			return &training{engine: e, model: m}, nil
		}
		if !errors.Is(err, backend.ErrOutOfMemory) {
			break
		}
	}
	return nil, err
}

func (t *training) Sample(ctx context.Context) (float64, error) {
	t.step++
	start := time.Now()
	if err := t.engine.Accumulate(ctx, &t.batch, uint32(t.step)); err != nil {
		return 0, err
	}
	_, err := t.engine.Update(ctx, t.batch.LossTokens, t.step, 1e-5)
	return time.Since(start).Seconds(), err
}

func (t *training) Close() error {
	t.engine.Close()
	return t.model.Close()
}
