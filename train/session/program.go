package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
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
	rows   int // of these, whose logits exist at once where they must exist whole
}

// parts is how many times there are logits of so many rows.
func (p pass) parts() int { return (p.tokens + p.rows - 1) / p.rows }

// result is where the losses of tokens are, of −log p of each target.
func (p pass) result() string { return fmt.Sprintf("session.losses.%d.%d", p.tokens, p.width) }

// emit has a program give the losses of the targets, and add to gradients.
func (p pass) emit(b *nn.Builder, head *nn.Head, program *graph.Program, recompute bool) {
	n, body := b.Axis(nn.Tokens), b.Trained()
	if p.width == 1 && p.form != bent {
		if losses, ok := head.Losses(b.Input(nn.Labels, tensor.I32, n)); ok {
			program.Result(p.result(), losses)
			if p.form == linear {
				losses = losses.Reshape(n, ir.Static(1))
				accumulate(b, program, losses.Mul(b.Input(slopeInputs[0], tensor.F32, n, ir.Static(1))), body, recompute)
			}
			return
		}
	}
	p.emitParts(b, head, program, body, recompute)
}

// accumulate adds to the gradients of parameters by losses [n, width].
func accumulate(b *nn.Builder, program *graph.Program, losses graph.Tensor, trained []nn.Trained, recompute bool) {
	for i, g := range b.G.Gradients(losses.Sum(1).Sum(0), params(b, trained), recompute) {
		program.Accumulate(engine.SlotPrefix+gradientPrefix+trained[i].Name, g)
	}
}

func params(b *nn.Builder, trained []nn.Trained) (all []graph.Tensor) {
	for _, t := range trained {
		all = append(all, b.Train(t.Name, t.Shape...))
	}
	return all
}

// weight is −∂loss/∂p of the targets of some rows whose losses are −p, [m, width], where
// pick takes these from all rows.
func (p pass) weight(b *nn.Builder, losses graph.Tensor, pick func(graph.Tensor) graph.Tensor) graph.Tensor {
	in := func(i int) graph.Tensor {
		n := b.Axis(nn.Tokens)
		return pick(b.Input(slopeInputs[i], tensor.F32, n, ir.Static(p.width)))
	}
	weight := in(0)
	if p.form == bent {
		pull, ratio, q, low, high, below, above := in(1), in(2), in(3), in(4), in(5), in(6), in(7)
		off := losses.Scale(-1).Sub(q)
		rho := off.Apply(ir.Exp)
		g := rho.Compare(ir.Less, low).Where(below, rho.Compare(ir.Greater, high).Where(above, rho))
		weight = weight.Add(ratio.Mul(g)).Sub(pull.Mul(off))
	}
	return weight.Detach()
}

// emitParts is emit where the head has an adapter, or there are several targets, for which
// the logits are needed whole, and where gradients depend on losses, for which they would be
// made twice. Those of a part of the rows are made, and used up, at a time. The gradients
// go from there to what the head is applied to, and then into the body.
func (p pass) emitParts(b *nn.Builder, head *nn.Head, program *graph.Program, body []nn.Trained, recompute bool) {
	n, states, width := b.Axis(nn.Tokens), head.Hidden(), ir.Static(p.width)
	if !states.Valid() {
		return
	}
	losses, back := b.G.Const(0, n, width), b.G.Const(0, states.Type().Shape...)
	var sums []graph.Tensor // of the gradients of the head's own parameters
	for i := range p.parts() {
		h, m, in := *head, n, inputsOf(i)
		pick := func(x graph.Tensor) graph.Tensor { return x }
		put := func(_, rows graph.Tensor) graph.Tensor { return rows }
		if p.parts() > 1 {
			m = b.Axis(in.axis)
			rows, to := b.Input(in.rows, tensor.I32, m), b.Input(in.to, tensor.I32, m)
			one, zero := ir.Static(1), b.G.Of(b.G.IR().Const(0, ir.Type{DType: tensor.I32, Shape: ir.Shape{}}))
			there := to.Compare(ir.GreaterEqual, zero).Reshape(m, one)
			// A row that is there because none would be weighs nothing.
			pick = func(x graph.Tensor) graph.Tensor { return there.Where(x.Gather(rows), b.G.Const(0)) }
			put = func(table, rows graph.Tensor) graph.Tensor { return table.ScatterRows(rows, to) }
			h = head.Rows(rows)
		}
		own := p.ofLogits(b, h, i, m)
		if !own.Valid() {
			return
		}
		losses = put(losses, own)
		if p.form == forward {
			continue
		}
		loss := own.Mul(p.weight(b, own, pick)).Sum(1).Sum(0)
		trained := params(b, b.Trained()[len(body):])
		if i == 0 {
			sums = make([]graph.Tensor, len(trained))
		}
		gradients := b.G.Gradients(loss, append(trained, h.Hidden()), false)
		for j := range trained {
			g := gradients[j].Detach() // else sums of products become one, which keeps all logits
			if i > 0 {
				g = sums[j].Add(g)
			}
			sums[j] = g
		}
		back = put(back, gradients[len(trained)])
	}
	program.Result(p.result(), losses.Reshape(ir.Dim{N: n.N * p.width, Var: n.Var}))
	if p.form == forward {
		return
	}
	for j, t := range b.Trained()[len(body):] {
		program.Accumulate(engine.SlotPrefix+gradientPrefix+t.Name, sums[j])
	}
	if len(body) > 0 {
		accumulate(b, program, states.Mul(back.Detach()), body, recompute)
	}
}

// ofLogits are the losses of the n rows of part i of a head, [n, width].
func (p pass) ofLogits(b *nn.Builder, head nn.Head, i int, n ir.Dim) graph.Tensor {
	logits, in := head.Logits(), inputsOf(i)
	if !logits.Valid() {
		return logits
	}
	one, v := ir.Static(1), logits.Type().Last().N
	first := logits.CrossEntropyByRow(b.Input(in.labels, tensor.I32, n)).Reshape(n, one)
	if p.width == 1 {
		return first
	}
	all := logits.Reshape(ir.Dim{N: n.N * v, Var: n.Var}, one)
	places := b.Input(in.places, tensor.I32, ir.Dim{N: n.N * p.width, Var: n.Var})
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

// pass is the program of a pass. Where the device has too little memory, each layer is
// computed again for its gradients.
func (b *Base) pass(ctx context.Context, s *engine.Slot, p pass) (program, error) {
	if x, ok := b.find(s, p); ok {
		return x, nil
	}
	bounds := map[string]int{nn.Tokens: p.tokens}
	for i := range p.parts() {
		bounds[inputsOf(i).axis] = p.rows
	}
	load := func(recompute bool) (program, error) {
		return b.load(ctx, s, p, engine.Spec{Bounds: bounds, Training: p.form != forward, Build: func(n *nn.Builder, program *graph.Program) {
			p.emit(n, b.runtime.Model().Build(n).Head, program, recompute)
		}})
	}
	x, err := load(false)
	if errors.Is(err, backend.ErrOutOfMemory) && p.form != forward {
		return load(true) // which changes no bit
	}
	return x, err
}
