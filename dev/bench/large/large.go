// Package large measures models of realistic size on a GPU: training steps, decoding of one sequence, decoding of many
// served sequences with their own adapters, and a training step of a FLUX block. Weights are generated on the device;
// see [program.Random].
package large

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/dev/bench/peer"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
)

// Options configures Run. All options apply to every row, so that a short run uses the same programs.
type Options struct {
	bench.Turns
	Backend string // name of the backend, empty for the best
	// Size is the language model, see [checkpoint.Shapes].
	Size string
	// Rows and Length are the texts of a training step, and tokens of each.
	Rows, Length int
	// Contexts are the numbers of tokens that others are generated behind, Tokens of them
	// for a sample.
	Contexts []int
	Tokens   int
	// Texts are the numbers of texts that are served at the same time.
	Texts []int
	// Adapters is the number of adapters that these sequences share.
	Adapters int
	Rank     int
	// Flux is the block of FLUX, and Side the height and width of its picture, in pixels.
	Flux checkpoint.Flux
	Side int
	// Torch trains the language model for comparison; it may be nil.
	Torch *peer.Peer
	// Dir is the folder for temporary models; empty means the system's temporary folder.
	Dir string
}

func (o *Options) check() (checkpoint.Shape, error) {
	shape, err := checkpoint.ByName(o.Size)
	if err != nil {
		return shape, fmt.Errorf("%w: %w", bench.ErrOptions, err)
	}
	for _, n := range []struct {
		what         string
		found, least int
	}{{"texts of a step", o.Rows, 1}, {"tokens of a text", o.Length, 2}, {"tokens of a sample", o.Tokens, 1}, {"adapters", o.Adapters, 1}, {"a rank", o.Rank, 1}, {"pixels", o.Side, 16}} {
		if n.found < n.least {
			return shape, fmt.Errorf("%w: found %s of %d, expected %d or more", bench.ErrOptions, n.what, n.found, n.least)
		}
	}
	if len(o.Contexts) == 0 {
		return shape, fmt.Errorf("%w: no context", bench.ErrOptions)
	}
	return shape, nil
}

// Run runs the benchmark. It fails with [bench.ErrOptions], with errors of the device and with the error of ctx; the
// report then holds the measurements so far.
func Run(ctx context.Context, o Options) (_ *bench.Report, err error) {
	shape, err := o.check()
	if err != nil {
		return nil, fmt.Errorf("large: %w", err)
	}
	m, err := program.Open(o.Backend, 0)
	if err != nil {
		return nil, fmt.Errorf("large: %w", err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	dir, err := os.MkdirTemp(o.Dir, "lorafuse-bench-")
	if err != nil {
		return nil, fmt.Errorf("large: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m.Quick = true
	dev, err := program.Draw(m.Device(backend.BF16))
	if err != nil {
		return nil, fmt.Errorf("large: %w", err)
	}
	s := &suite{Options: o, machine: m, dev: dev, shape: shape, dir: dir}
	tasks := append(s.steps(), s.tokens()...)
	tasks = append(append(tasks, s.served()...), s.pictures()...)
	if tasks, err = o.Select(tasks); err != nil {
		return nil, fmt.Errorf("large: %w", err)
	}
	report := m.Report("large")
	if err := m.Measure(ctx, o.Turns, tasks, report); err != nil {
		return report, fmt.Errorf("large: %w", err)
	}
	return report, nil
}

// Names of the measured programs.
const (
	ours  = "lorafuse"
	torch = "torch + PEFT"
)

type suite struct {
	Options
	machine *program.Machine
	dev     *program.Random
	shape   checkpoint.Shape
	dir     string
}

// language opens the language model.
func (s *suite) language() (*model.Model, error) {
	if err := s.shape.WriteEmpty(s.dir); err != nil {
		return nil, err
	}
	return model.Open(s.dir)
}

// adapter returns an adapter on all linear layers of a model. Its B is not zero.
func (s *suite) adapter(m *model.Model) (*lora.State, error) {
	c := lora.DefaultConfig()
	c.R, c.LoraAlpha, c.TargetModules = s.Rank, float64(2*s.Rank), lora.ModuleSet{Pattern: lora.AllLinear}
	c.InitLoraWeights = "false"
	p, err := lora.NewPlacement(c, lora.ModelOf(m.Config.ModelType, m.Modules()))
	if err != nil {
		return nil, err
	}
	return p.InitialState(m, 1)
}
