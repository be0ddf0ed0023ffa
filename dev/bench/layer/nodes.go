package layer

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/program"
)

// layersOfNodes is how many adapted layers one run of the program has.
const layersOfNodes = 256

// nodes is what an adapted layer of a graph takes where there is next to
// nothing to compute: in all, and without what its kernels take.
func (s *suite) nodes() []bench.Task {
	row := func(name string) *bench.Row {
		return &bench.Row{Group: "Lazy overhead", Program: ours, Name: name, Input: "1×16 r=4"}
	}
	all, beside := row("LoRA node with its kernels"), row("LoRA node beside its kernels")
	return []bench.Task{
		{Row: all, Begin: func(ctx context.Context) (bench.Sampler, error) {
			x, err := program.New(ctx, s.machine.Device(backend.F32), many(layersOfNodes))
			if err != nil {
				return nil, err
			}
			return &divided{x.Sampler(s.machine.Stretch()), layersOfNodes}, nil
		}},
		{Row: beside, Marks: []bench.Mark{{Name: "a LoRA node beside its kernels", Row: beside.ID(), Seconds: 1e-6}}, Begin: s.beside},
	}
}

// divided takes samples of one of several things that are done at a time.
type divided struct {
	bench.Sampler
	by float64
}

func (d *divided) Sample(ctx context.Context) (float64, error) {
	seconds, err := d.Sampler.Sample(ctx)
	return seconds / d.by, err
}

// beside compiles the program twice: on the device as it is, and on one that
// takes the time of every kernel.
func (s *suite) beside(ctx context.Context) (bench.Sampler, error) {
	o := &overhead{profile: &backend.Profile{}, clock: clock()}
	var err error
	if o.device, err = backend.Open(s.Backend, backend.Options{Threads: s.Threads, Profile: o.profile}); err != nil {
		return nil, err
	}
	if o.plain, err = program.New(ctx, s.machine.Device(backend.F32), many(layersOfNodes)); err == nil {
		o.watched, err = program.New(ctx, o.device, many(layersOfNodes))
	}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

type overhead struct {
	plain, watched *program.Program
	device         backend.Device // of watched
	profile        *backend.Profile
	clock          time.Duration // what it takes to read it
}

// Sample is what a run takes less what its kernels take, for each layer: of
// several runs of both the shortest, since the difference of two longer times
// would be that of what else runs on the machine.
func (o *overhead) Sample(ctx context.Context) (float64, error) {
	const runs = 32
	all, kernels := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	before := o.kernels()
	for range runs {
		start := time.Now()
		if err := o.plain.Run(ctx); err != nil {
			return 0, err
		}
		all = min(all, time.Since(start))
		if err := o.watched.Run(ctx); err != nil {
			return 0, err
		}
		after := o.kernels()
		kernels, before = min(kernels, after-before), after
	}
	return max((all-kernels).Seconds()/layersOfNodes, 1e-9), nil // a clock has no smaller steps
}

// kernels is the time of all kernels so far, without that of the clock.
func (o *overhead) kernels() (sum time.Duration) {
	for _, r := range o.profile.Rows() {
		sum += r.Time - time.Duration(r.Calls)*o.clock
	}
	return sum
}

func (o *overhead) Close() error {
	var err error
	for _, p := range []*program.Program{o.plain, o.watched} {
		if p != nil {
			err = errors.Join(err, p.Close())
		}
	}
	return errors.Join(err, o.device.Close())
}

// clock is the time that passes between two readings of the clock.
func clock() time.Duration {
	const batches, readings = 16, 256
	best := time.Duration(math.MaxInt64)
	for range batches {
		var sum time.Duration
		for range readings {
			start := time.Now()
			sum += time.Since(start)
		}
		best = min(best, sum/readings)
	}
	return best
}
