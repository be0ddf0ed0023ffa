package session

import (
	"context"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/engine"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Names of what programs read and write beside the model.
const (
	gradientPrefix = "gradient."
	firstPrefix    = "moment1."
	secondPrefix   = "moment2."

	placesInput = "target places"
)

// slopeInputs are the arrays of the fields of a slope, in their order.
var slopeInputs = [...]string{"slope weight", "slope pull", "slope ratio", "slope q", "slope low", "slope high", "slope below", "slope above"}

// fields are those of the slope.
func (s slope) fields() [len(slopeInputs)]float32 {
	return [...]float32{s.weight, s.pull, s.ratio, s.q, s.low, s.high, s.below, s.above}
}

// form is what a pass computes.
type form uint8

const (
	forward form = iota // the losses of tokens
	linear              // and gradients by weights that are given
	bent                // or that depend on the losses
)

// fields is how many of a slope are read.
func (f form) fields() int { return [...]int{0, 1, len(slopeInputs)}[f] }

// pass is a kind of program: of one datum.
type pass struct {
	form   form
	width  int // targets of a token
	tokens int // at most
}

// result is where the losses of tokens are, of −log p of each target.
func (p pass) result() string { return fmt.Sprintf("session.losses.%d.%d", p.tokens, p.width) }

// emit has a program give the losses of the targets, and add to gradients.
func (p pass) emit(b *nn.Builder, head *nn.Head, program *graph.Program) {
	n := b.Axis(nn.Tokens)
	rows := ir.Dim{N: n.N * p.width, Var: n.Var}
	losses := p.losses(b, head, n)
	if !losses.Valid() {
		return
	}
	losses = losses.Reshape(rows)
	program.Result(p.result(), losses)
	if p.form == forward {
		return
	}
	in := func(i int) graph.Tensor { return b.Input(slopeInputs[i], tensor.F32, rows) }
	weight := in(0)
	if p.form == bent {
		pull, ratio, q, low, high, below, above := in(1), in(2), in(3), in(4), in(5), in(6), in(7)
		off := losses.Scale(-1).Sub(q)
		rho := off.Apply(ir.Exp)
		g := rho.Compare(ir.Less, low).Where(below, rho.Compare(ir.Greater, high).Where(above, rho))
		weight = weight.Add(ratio.Mul(g)).Sub(pull.Mul(off)).Detach()
	}
	trained := b.Trained()
	params := make([]graph.Tensor, len(trained))
	for i, t := range trained {
		params[i] = b.Train(t.Name, t.Shape...)
	}
	for i, g := range b.G.Gradients(losses.Mul(weight).Sum(0), params, false) {
		program.Accumulate(engine.SlotPrefix+gradientPrefix+trained[i].Name, g)
	}
}

// losses are those of the targets, [n] or [n, width].
func (p pass) losses(b *nn.Builder, head *nn.Head, n ir.Dim) graph.Tensor {
	labels := b.Input(nn.Labels, tensor.I32, n)
	if p.width == 1 {
		if losses, ok := head.Losses(labels); ok {
			return losses
		}
		return head.Logits().CrossEntropyByRow(labels)
	}
	logits := head.Logits()
	if !logits.Valid() {
		return logits
	}
	one, v := ir.Static(1), logits.Type().Last().N
	first := logits.CrossEntropyByRow(labels).Reshape(n, one)
	all := logits.Reshape(ir.Dim{N: n.N * v, Var: n.Var}, one)
	places := b.Input(placesInput, tensor.I32, ir.Dim{N: n.N * p.width, Var: n.Var})
	each := all.Gather(places).Reshape(n, ir.Static(p.width))
	return first.Add(each.Slice(1, 0, 1)).Sub(each) // logsumexp, which the first target has, less the logit
}

// kept is how many programs are kept at most, and keptArenas how many times the largest of
// their arenas all of them may have together; those that were used longest ago go first.
const kept, keptArenas = 64, 3

// program is one of those that sessions of a shape share.
type program struct {
	shape string
	what  any // a pass, or the constants of a step
	*engine.Program
	result string // of a pass
}

// find gives the program of what, for sessions of the shape of s.
func (b *Base) find(s *engine.Slot, what any) (p program, ok bool) {
	i := slices.IndexFunc(b.programs, func(p program) bool { return p.shape == s.Shape() && p.what == what })
	if i < 0 {
		return p, false
	}
	p = b.programs[i]
	b.programs = append(slices.Delete(b.programs, i, i+1), p)
	return p, true
}

// load loads the program of what, or brings s to the device where it is there.
func (b *Base) load(ctx context.Context, s *engine.Slot, what any, spec engine.Spec) (program, error) {
	var old []*engine.Program
	p, loaded := b.find(s, what)
	if loaded {
		old = append(old, p.Program)
	}
	d, err := b.runtime.Plan(s, spec)
	if err != nil {
		return p, fmt.Errorf("session: %w", err)
	}
	if !loaded {
		b.makeRoom(d.Program.Arena)
	}
	ps, err := b.runtime.Load(ctx, s, old, d)
	if err != nil {
		return p, fmt.Errorf("session: %w", err)
	}
	if !slices.Contains(old, ps[0]) {
		p = program{shape: s.Shape(), what: what, Program: ps[0]}
		if x, ok := what.(pass); ok {
			p.result = x.result()
		}
		b.programs = append(b.programs, p)
	}
	return p, nil
}

// makeRoom frees programs before one with an arena of so many bytes is loaded.
func (b *Base) makeRoom(arena int) {
	all, largest := arena, arena
	for _, p := range b.programs {
		all, largest = all+p.Plan().Arena, max(largest, p.Plan().Arena)
	}
	for len(b.programs) > 0 && (len(b.programs) >= kept || all > keptArenas*largest) {
		p := b.programs[0]
		all -= p.Plan().Arena
		b.forget(func(x program) bool { return x == p })
	}
}

// pass is the program of a pass.
func (b *Base) pass(ctx context.Context, s *engine.Slot, p pass) (program, error) {
	if x, ok := b.find(s, p); ok {
		return x, nil
	}
	return b.load(ctx, s, p, engine.Spec{Bounds: map[string]int{nn.Tokens: p.tokens}, Training: p.form != forward, Build: func(n *nn.Builder, program *graph.Program) {
		p.emit(n, b.runtime.Model().Build(n).Head, program)
	}})
}
