package session

import (
	"fmt"
	"math/bits"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/tensor"
)

// slopeInputs are the arrays of the fields of a slope, in their order.
var slopeInputs = [...]string{"slope weight", "slope pull", "slope ratio", "slope q", "slope low", "slope high", "slope below", "slope above"}

// fields returns the fields of the slope.
func (s slope) fields() [len(slopeInputs)]float32 {
	return [...]float32{s.weight, s.pull, s.ratio, s.q, s.low, s.high, s.below, s.above}
}

// form is the kind of computation in a pass.
type form uint8

const (
	forward form = iota // the losses of tokens
	linear              // and gradients for given weights
	bent                // or that depend on the losses
)

// fields returns the number of fields of a slope that the form reads.
func (f form) fields() int { return [...]int{0, 1, len(slopeInputs)}[f] }

// leastTokens is the bound of the programs of the shortest datums.
const leastTokens = 64

// logitBytes is the size of the logits that exist at once, unless that makes more than
// mostParts of them.
const (
	logitBytes = 128 << 20
	mostParts  = 16
)

// kind is a kind of pass over one datum, or over one of each of several sessions.
type kind struct {
	form     form
	width    int // targets of a token
	tokens   int // at most
	rows     int // number of rows whose logits are in memory at once, if they must be materialized
	sessions int
}

// kindOf returns the pass over n tokens of data of some sessions. For one session, it depends
// only on the datum, so that the bits of its gradients do not depend on earlier data.
func (s *Session) kindOf(n, width int, f form, sessions int) kind {
	n = max(leastTokens, 1<<bits.Len(uint(n-1)))
	if sessions == 1 {
		n = min(n, s.model.tokens)
	}
	return kind{form: f, width: width, tokens: n, rows: max(1, min(n, s.logits/4/s.model.vocabulary), (n+mostParts-1)/mostParts), sessions: sessions}
}

// parts returns the number of parts of the rows, each with its own logits.
func (p kind) parts() int { return (p.tokens + p.rows - 1) / p.rows }

// lossesResult names the result with the losses of tokens, −log p of each target.
const lossesResult = "session.losses"

// pass returns the pass of a kind of datum.
func (p kind) pass() *trainer.Pass {
	bounds := map[string]int{nn.Tokens: p.tokens}
	for i := range p.parts() {
		bounds[inputsOf(i).axis] = p.rows
	}
	return &trainer.Pass{Name: fmt.Sprintf("session.pass %+v", p), Bounds: bounds, Forward: p.form == forward, Emit: p.emit}
}

// emit emits a program that computes the losses of the targets and accumulates
// gradients.
func (p kind) emit(b *trainer.Emitter) {
	n, body := b.Axis(nn.Tokens), b.Trained()
	if p.width == 1 && p.form != bent {
		if losses, ok := b.Out.Head.Losses(b.Input(nn.Labels, tensor.I32, n)); ok {
			b.Result(lossesResult, losses)
			if p.form == linear {
				losses = losses.Reshape(n, ir.Static(1))
				backward(b, losses.Mul(b.Input(slopeInputs[0], tensor.F32, n, ir.Static(1))), body)
			}
			return
		}
	}
	p.emitParts(b, body)
}

// backward adds to the gradients of parameters by losses [n, width].
func backward(b *trainer.Emitter, losses graph.Tensor, trained []nn.Trained) {
	b.Backward(losses.Sum(1).Sum(0), trained)
}

// weight returns −∂loss/∂p of the targets of some rows with losses −p, [m, width]. pick
// selects these rows from all rows.
func (p kind) weight(b *trainer.Emitter, losses graph.Tensor, pick func(graph.Tensor) graph.Tensor) graph.Tensor {
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

// emitParts implements emit for cases in which the logits must be materialized (the
// head has an adapter, or there are several targets) or would be computed twice
// (gradients depend on losses). It computes and consumes the logits of one part of the
// rows at a time. The gradients flow from there to the inputs of the head, and then
// into the body.
func (p kind) emitParts(b *trainer.Emitter, body []nn.Trained) {
	head := b.Out.Head
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
			// Rows of padding get weight zero.
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
		trained := b.Params(b.Trained()[len(body):])
		if i == 0 {
			sums = make([]graph.Tensor, len(trained))
		}
		gradients := b.G.Gradients(loss, append(trained, h.Hidden()), false)
		for j := range trained {
			g := gradients[j].Detach() // otherwise sums of products are fused into one, which keeps all logits
			if i > 0 {
				g = sums[j].Add(g)
			}
			sums[j] = g
		}
		back = put(back, gradients[len(trained)])
	}
	b.Result(lossesResult, losses.Reshape(ir.Dim{N: n.N * p.width, Var: n.Var}))
	if p.form == forward {
		return
	}
	for j, t := range b.Trained()[len(body):] {
		b.AddGradient(t, sums[j])
	}
	if len(body) > 0 {
		backward(b, states.Mul(back.Detach()), body)
	}
}

// ofLogits returns the losses of the n rows in part i of a head, [n, width].
func (p kind) ofLogits(b *trainer.Emitter, head nn.Head, i int, n ir.Dim) graph.Tensor {
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
