package large

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
)

// tokens returns tasks for decoding one sequence, without and with an adapter.
func (s *suite) tokens() (tasks []bench.Task) {
	if s.Torch != nil {
		return nil
	}
	for _, behind := range s.Contexts {
		for _, adapted := range []bool{false, true} {
			name, weights := "bf16", s.bytes(behind+s.Tokens/2)
			if adapted {
				name += fmt.Sprintf(", adapter r=%d", s.Rank)
				weights += int64(4 * s.shape.LoRAParams(s.Rank))
			}
			row := &bench.Row{Group: "One token", Program: ours, Name: name, Input: fmt.Sprintf("%s, behind %d tokens", s.shape, behind), Tokens: 1, Bytes: weights}
			s.machine.Hold(row, backend.BF16)
			t := bench.Task{Row: row, Begin: func(ctx context.Context) (bench.Sampler, error) { return s.generation(ctx, behind, adapted) }}
			if !adapted {
				t.Marks = []bench.Mark{{Name: bench.TargetDecode, Row: row.ID(), BytePeak: bench.LeastDecode}}
			}
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// bytes returns the minimum number of bytes that a step reads: the weights, and keys and values of the given number of
// tokens, as bf16.
func (s *suite) bytes(tokens int) int64 {
	return 2*int64(s.shape.LinearParams()) + 4*int64(s.shape.Layers*s.shape.KVHeads*s.shape.HeadDim())*int64(tokens)
}

// prompt returns a text that differs from all others in its first tokens.
func (s *suite) prompt(number, tokens int) []int32 {
	ids := make([]int32, tokens)
	for i := range ids {
		ids[i] = int32(5 + (i*7+number*131)%(s.shape.Vocab-5))
	}
	return ids
}

// generation samples the time of one token after a context.
type generation struct {
	*generate.Generator
	model  *model.Model
	prompt []int32
	tokens int
}

func (s *suite) generation(ctx context.Context, behind int, adapted bool) (_ bench.Sampler, err error) {
	m, err := s.language()
	if err != nil {
		return nil, err
	}
	var state *lora.State
	if adapted {
		state, err = s.adapter(m)
	}
	g := &generation{model: m, prompt: s.prompt(0, behind), tokens: s.Tokens}
	if err == nil {
		g.Generator, err = generate.New(ctx, s.dev, m, state, generate.Options{MaxLength: behind + s.Tokens + 1})
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return g, nil
}

func (g *generation) Sample(ctx context.Context) (float64, error) {
	r, err := g.Generate(ctx, g.prompt, generate.GenerateOptions{MaxNewTokens: g.tokens + 1, IgnoreEOS: true}, nil) // the first comes of the prompt
	return r.TokenTime.Seconds() / float64(g.tokens), err
}

func (g *generation) Close() error {
	g.Generator.Close()
	return g.model.Close()
}

// served returns tasks for decode steps of concurrent sequences, each with an adapter.
func (s *suite) served() (tasks []bench.Task) {
	if s.Torch != nil {
		return nil
	}
	behind := s.Contexts[0]
	for _, texts := range s.Texts {
		adapters := min(texts, s.Adapters)
		row := &bench.Row{
			Group: "One step of texts that are served", Program: ours, Name: fmt.Sprintf("%d texts, %d adapters r=%d", texts, adapters, s.Rank),
			Input:  fmt.Sprintf("%s, behind %d tokens each, %d at a time", s.shape, behind, texts), // an input of its own: one engine fits into memory
			Tokens: float64(texts), Bytes: s.bytes(texts*(behind+s.Tokens/2)) + int64(adapters*4*s.shape.LoRAParams(s.Rank)),
		}
		s.machine.Hold(row, backend.BF16)
		tasks = append(tasks, bench.Task{Row: row, Begin: func(ctx context.Context) (bench.Sampler, error) { return s.serving(ctx, texts, behind) }})
	}
	return tasks
}

// serving samples steps of an engine.
type serving struct {
	*batching.Engine
	suite         *suite
	model         *model.Model
	texts, behind int
	round         int

	// The state of one round and of the goroutine that runs its steps.
	ctx   context.Context
	begun bool
	last  time.Time // end of the last step that included all sequences; zero if the last step did not
	took  []float64 // durations from the end of one such step to the next
}

// step records the duration of a step. The first step waits until all sequences have arrived, so that they are decoded
// together.
func (x *serving) step(s batching.Step) {
	for !x.begun && x.ctx.Err() == nil {
		there, now := 0, x.Stats()
		for _, c := range slices.Concat(now.Running, now.Waiting) {
			there += c.Requests
		}
		if x.begun = there == x.texts; !x.begun {
			time.Sleep(time.Millisecond)
		}
	}
	switch now := time.Now(); {
	case s.Prompt > 0 || s.Texts < x.texts:
		x.last = time.Time{}
	case x.last.IsZero():
		x.last = now
	default:
		x.took, x.last = append(x.took, now.Sub(x.last).Seconds()), now
	}
}

func (s *suite) serving(ctx context.Context, texts, behind int) (_ bench.Sampler, err error) {
	m, err := s.language()
	if err != nil {
		return nil, err
	}
	x := &serving{suite: s, model: m, texts: texts, behind: behind}
	length := behind + s.Tokens + 1
	// All prompts are read in eight steps: the first sequences must not end before the last ones begin.
	x.Engine, err = batching.New(ctx, s.dev, m, batching.Options{
		MaxTexts: texts, MaxLength: length, CacheTokens: 2 * texts * (length + 16), MaxBatchTokens: max(256, texts*behind/8), Adapters: lora.RegistryOptions{MaxResident: s.Adapters}, OnStep: x.step,
	})
	if err == nil {
		if err = x.load(ctx, min(texts, s.Adapters)); err != nil {
			x.Engine.Close()
		}
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return x, nil
}

// load loads adapters that differ in one number; the engine would treat equal ones as one.
func (x *serving) load(ctx context.Context, adapters int) error {
	state, err := x.suite.adapter(x.model)
	if err != nil {
		return err
	}
	for i := range adapters {
		for _, values := range state.Values {
			values[0] += 1e-3
		}
		config, tensors, err := state.Tensors(true)
		if err != nil {
			return err
		}
		for k := range tensors {
			tensors[k].Data = slices.Clone(tensors[k].Data)
		}
		a, err := lora.New(config, tensors)
		if err == nil {
			_, err = x.Adapters().Add(ctx, name(i), a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func name(i int) string { return fmt.Sprint("adapter-", i) }

// Sample returns the median duration of a step that includes all sequences.
func (x *serving) Sample(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x.ctx, x.round, x.begun, x.last, x.took = ctx, x.round+1, false, time.Time{}, nil
	failures := make([]error, x.texts)
	var all sync.WaitGroup
	for i := range x.texts {
		all.Go(func() {
			r := batching.Request{
				Prompt: x.suite.prompt(x.round*x.texts+i, x.behind), Adapter: name(i % min(x.texts, x.suite.Adapters)),
				Salt: fmt.Sprint(x.round, i), Answers: []generate.GenerateOptions{{MaxNewTokens: x.suite.Tokens + 1, IgnoreEOS: true}},
			}
			for _, err := range x.Submit(ctx, r) {
				if failures[i] = err; err != nil {
					cancel()
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		return 0, err
	}
	if len(x.took) == 0 {
		return 0, fmt.Errorf("large: %d texts were never continued at the same time for two steps: continue them longer", x.texts)
	}
	return bench.Quantile(x.took, 0.5), nil
}

func (x *serving) Close() error {
	x.Engine.Close()
	return x.model.Close()
}
