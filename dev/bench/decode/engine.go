package decode

import (
	"context"
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/lora"
)

// engineKind is a way to generate.
type engineKind struct {
	adapter   bool // not merged
	precision backend.Precision
	weights   quant.Method // empty for the type in the file
}

func (k engineKind) name(rank int) string {
	if k.adapter {
		return fmt.Sprintf("adapter r=%d, not merged, %v", rank, k.precision)
	}
	if k.weights != "" {
		return fmt.Sprintf("merged, %s weights", k.weights)
	}
	return fmt.Sprintf("merged, %v", k.precision)
}

// engine is a generator that all rows of its kind share, with its prefix cache.
type engine struct{ generator *generate.Generator }

// engine returns the engine of a kind.
func (s *suite) engine(ctx context.Context, k engineKind) (*engine, error) {
	if e := s.engines[k]; e != nil {
		return e, nil
	}
	var state *lora.State
	if k.adapter {
		c := lora.DefaultConfig()
		c.R, c.LoraAlpha, c.TargetModules = s.Rank, float64(2*s.Rank), lora.ModuleSet{Pattern: lora.AllLinear}
		c.InitLoraWeights = "false" // B is not zero
		p, err := lora.NewPlacement(c, lora.ModelOf(s.model.Config.ModelType, s.model.Modules()))
		if err != nil {
			return nil, err
		}
		if state, err = p.InitialState(s.model, 1); err != nil {
			return nil, err
		}
	}
	m, err := s.weights(k.weights)
	if err != nil {
		return nil, err
	}
	g, err := generate.New(ctx, s.machine.Device(k.precision), m, state, generate.Options{})
	if err != nil {
		return nil, err
	}
	if s.engines == nil {
		s.engines = map[engineKind]*engine{}
	}
	s.engines[k] = &engine{g}
	return s.engines[k], nil
}

// weights returns the model. A quantized variant is opened separately.
func (s *suite) weights(method quant.Method) (*model.Model, error) {
	if method == "" {
		return s.model, nil
	}
	m, err := model.Open(s.dir)
	if err != nil {
		return nil, err
	}
	s.quantized = append(s.quantized, m)
	return m, m.Quantize(method, nil)
}

func (s *suite) closeEngines() {
	for _, e := range s.engines {
		e.generator.Close()
	}
	s.engines = nil
}

// prompt returns the first n tokens of the common text. It contains no control tokens.
func (s *suite) prompt(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(5 + i*7%200)
	}
	return ids
}

// behind samples the time of one token after a context.
type behind struct {
	*engine
	prompt []int32
	tokens int
}

func (b *behind) Sample(ctx context.Context) (float64, error) {
	// The first token comes of reading the prompt.
	r, err := b.generator.Generate(ctx, b.prompt, generate.GenerateOptions{MaxNewTokens: b.tokens + 1, IgnoreEOS: true}, nil)
	if err != nil {
		return 0, err
	}
	return r.TokenTime.Seconds() / float64(b.tokens), nil
}

func (b *behind) Close() error { return nil }

// reading samples the time of reading a prompt.
type reading struct {
	*engine
	prompt []int32
}

func (r *reading) Sample(ctx context.Context) (float64, error) {
	r.generator.Reset()
	x, err := r.generator.Generate(ctx, r.prompt, generate.GenerateOptions{MaxNewTokens: 1, IgnoreEOS: true}, nil)
	if err == nil && x.CachedTokens > 0 {
		err = fmt.Errorf("decode: %d tokens of the prompt had been read before", x.CachedTokens)
	}
	return x.PromptTime.Seconds(), err
}

func (r *reading) Close() error { return nil }

// loop samples the time to read the weights of all linear layers in place, without computing.
type loop struct {
	device  backend.Meter
	buffers []backend.Buffer
	bench.Sampler
}

func (s *suite) readLoop(context.Context) (bench.Sampler, error) {
	dev := s.machine.Device(backend.F32)
	l := &loop{}
	var ok bool
	if l.device, ok = dev.(backend.Meter); !ok {
		return nil, fmt.Errorf("%w: the device cannot read alone", backend.ErrUnsupported)
	}
	for _, name := range s.shape.LinearNames() {
		w, err := s.model.Weight(name)
		if err != nil {
			return nil, err
		}
		b, err := dev.Import(w.Source)
		if err != nil {
			return nil, err
		}
		l.buffers = append(l.buffers, b)
	}
	read := func(_ context.Context, n int) (err error) {
		for range n {
			err = errors.Join(err, l.device.Read(l.buffers))
		}
		return err
	}
	l.Sampler = bench.Repeat(read, s.machine.MinDuration())
	return l, nil
}

func (l *loop) Close() error {
	for _, b := range l.buffers {
		b.Free()
	}
	return nil
}
