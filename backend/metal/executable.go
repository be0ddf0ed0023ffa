//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/backend/gpu"
)

// program is a compiled program. Its runs are divided into commands by their estimated duration.
type program struct {
	*gpu.Executable
	dev     *Device
	kernels []*kernel
	longest float64 // seconds that a run of the largest sizes takes a slow device

	// The fields below are of the device's turn.
	dims  []int     // sizes that costs are for
	costs []float64 // seconds that each launch of the program takes a slow device
	run   stream
}

// stream is the progress of a run that is being submitted.
type stream struct {
	flight *gpu.Flight
	whole  bool          // the run is one command
	timed  bool          // each command is waited for
	next   int           // launch of the program
	from   int           // first kernel of the next command
	slow   float64       // seconds that a slow device needs for the kernels since from
	took   time.Duration // duration of the commands that were waited for
}

// Load finds the kernels of a program, and compiles their files.
func (r runner) Load(e *gpu.Executable) (gpu.Program, error) {
	p := &program{Executable: e, dev: r.Device, costs: make([]float64, e.Plan.Len())}
	err := e.Find(func(k *gpu.Kernel) (uintptr, error) {
		found, err := r.shaders.kernel(k)
		if err != nil {
			return 0, err
		}
		p.kernels = append(p.kernels, found)
		return found.handle(), nil
	})
	if err != nil {
		return nil, err
	}
	p.price(e.Plan.MaxDims())
	for _, c := range p.costs {
		p.longest += c
	}
	p.longest += launchTime * float64(len(e.Plan.Kernels))
	return p, nil
}

// price estimates the launches of the program. A launch that is fused into another counts with that one.
func (p *program) price(dims []int) {
	if p.dims != nil && slices.Equal(p.dims, dims) {
		return
	}
	p.dims = append(p.dims[:0], dims...)
	clear(p.costs)
	for i := range p.costs {
		flops, bytes := p.Plan.Cost(i, dims)
		p.costs[p.Plan.Owner(i)] += slowSeconds(flops, bytes)
	}
}

// Close does nothing: the device owns the kernels.
func (p *program) Close() {}

// Launch submits a run as one command, or as several if it is long. If launches are being measured, earlier commands
// may be pending; the device completes them first.
func (p *program) Launch(f *gpu.Flight) error {
	f.Use(p.dev.queue.next()) // the blocks of the run stay until its last command has ended
	p.run = stream{flight: f, whole: p.dev.pace.fits(p.longest), timed: p.dev.Profile != nil}
	if !p.run.whole {
		p.price(f.Dims)
	}
	if p.run.timed {
		return f.Measure(p.measure)
	}
	if err := f.Batches(p.stage); err != nil {
		return err
	}
	return p.flush(len(p.Launches))
}

// Mark ends the run's commands in the queue.
func (p *program) Mark(f *gpu.Flight) error {
	p.run = stream{}
	f.Use(p.dev.queue.next())
	p.dev.queue.add(work{}, f)
	return nil
}

// stage adds filled launches to the current command, and submits it whenever it is long enough.
func (p *program) stage(from, to int) error {
	for k := from; k < to; k++ {
		if p.Launches[k].Grid[0] > 0 {
			p.kernels[k].learn(p.Plan.Kernels[k].Kinds())
		}
	}
	if p.run.whole {
		return nil
	}
	for ; p.run.next < p.Plan.Len(); p.run.next++ {
		first, end := p.Plan.Range(p.run.next)
		if end > to {
			break
		}
		if err := p.split(first, end, p.costs[p.run.next]); err != nil {
			return err
		}
	}
	return nil
}

// split adds the kernels of a launch of the program, which takes a slow device the given seconds. A kernel is taken to
// need its share of the threads, but at least an equal share.
func (p *program) split(from, to int, slow float64) error {
	threads, active := 0.0, 0.0
	for k := from; k < to; k++ {
		if n := threadsOf(&p.Launches[k]); n > 0 {
			threads, active = threads+n, active+1
		}
	}
	for k := from; k < to; k++ {
		n := threadsOf(&p.Launches[k])
		if n == 0 {
			continue
		}
		cost := launchTime + slow*max(n/threads, 1/active)
		switch pace := p.dev.pace; {
		case pace.fits(p.run.slow + cost):
			p.run.slow += cost
		case pace.fits(cost):
			if err := p.flush(k); err != nil {
				return err
			}
			p.run.slow = cost
		default:
			if err := p.flush(k); err != nil {
				return err
			}
			p.run.from = k + 1
			err := pace.divide(part{groups: p.Launches[k].Grid}, cost, func(only part, slow float64) error {
				return p.submit(span{p, k, k + 1, slow}, &only)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// threadsOf returns the number of threads of a launch, 0 if it is skipped.
func threadsOf(l *gpu.Launch) float64 {
	n := 1.0
	for i := range l.Grid {
		n *= float64(l.Grid[i]) * float64(l.Block[i])
	}
	return n
}

// flush submits the kernels before number to that are not submitted.
func (p *program) flush(to int) error {
	s := span{p, p.run.from, to, p.run.slow}
	p.run.from, p.run.slow = to, 0
	for k := s.from; k < to; k++ {
		if p.Launches[k].Grid[0] > 0 {
			return p.submit(s, nil)
		}
	}
	return nil
}

// submit submits kernels, or a part of one, as a command of the run. It waits while too many commands are on their way.
// After one of the run's commands has failed, which fails the run, it submits no more. Errors: of the run's context.
func (p *program) submit(s span, only *part) error {
	q, ctx := p.dev.queue, p.run.flight.Context()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := q.enter(ctx); err != nil {
		return err
	}
	if q.failing() {
		q.leave()
		return nil
	}
	w, wrong, err := p.dev.system.run(p.Launches[s.from:s.to], p.run.flight.Accesses, only)
	if err != nil {
		q.leave()
		return p.Blame(s.from+wrong, err)
	}
	if !p.run.timed {
		q.push(w, s)
		return nil
	}
	took, err := q.end(given{work: w, span: s})
	if err != nil {
		return p.dev.Failed(err)
	}
	p.run.took += took
	return nil
}

// measure runs filled launches, and waits for them.
func (p *program) measure(from, to int) (time.Duration, error) {
	p.run.from, p.run.took = from, 0
	if err := p.stage(from, to); err != nil {
		return 0, err
	}
	if err := p.flush(to); err != nil {
		return 0, err
	}
	return p.run.took, nil
}
