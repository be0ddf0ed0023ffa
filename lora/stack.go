package lora

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// recent is a recently read adapter of a stack.
type recent struct {
	name    string
	weights Weights
}

// addParts registers the merge of a stack's adapter into the weights that form the
// stack.
func (m *Merger) addParts(t Target) error {
	rows := t.matrices() * t.Out
	n := len(t.Parts)
	if n == 0 || rows%n != 0 {
		return fmt.Errorf("lora: merge %q: %d parts of %d rows: %w", t.Name, n, rows, ErrShape)
	}
	rows /= n
	for i, part := range t.Parts {
		m.add(part, func(values []float32, _ tensor.DType) error {
			if len(values) != rows*t.In {
				return fmt.Errorf("lora: part %q of %q has %d elements, expected %d: %w", part, t.Name, len(values), rows*t.In, ErrShape)
			}
			w, err := m.stackWeights(t)
			if err != nil {
				return err
			}
			if !t.Transposed {
				t.addStack(values, i*rows, w)
				return t.checkMerged(values)
			}
			turned := transposedStack(values, t.matrices(), t.In, t.Out)
			t.addStack(turned, 0, w)
			copy(values, transposedStack(turned, t.matrices(), t.Out, t.In))
			return t.checkMerged(values)
		})
	}
	return nil
}

// transposedStack transposes each of n matrices of a stack.
func transposedStack(stack []float32, n, rows, columns int) []float32 {
	out := make([]float32, len(stack))
	for m := range n {
		copy(out[m*rows*columns:], turned(stack[m*rows*columns:][:rows*columns], rows, columns))
	}
	return out
}

// stackWeights returns the adapter of a stack, read once for consecutive parts.
func (m *Merger) stackWeights(t Target) (Weights, error) {
	for _, r := range m.recent {
		if r.weights != nil && r.name == t.Name {
			return r.weights, nil
		}
	}
	w, err := m.adapter.Weights(t)
	if err == nil {
		m.recent = [2]recent{{t.Name, w}, m.recent[0]}
	}
	return w, err
}

// addStack adds Scale·B_e·A_e to rows of a stack, in which the matrices are
// concatenated. first is the number of the first row.
func (t Target) addStack(rows []float32, first int, w Weights) {
	count, n := t.matrices(), len(rows)/t.In
	for at := 0; at < n; {
		e, o := (first+at)/t.Out, (first+at)%t.Out
		until := min(n, at+t.Out-o) // of matrix e
		right := widen(w[RoleA][e*t.Rank*t.In:][:t.Rank*t.In])
		eachRange(until-at, func(from, to int) {
			sum, left := make([]float64, t.In), make([]float64, t.Rank)
			for i := at + from; i < at+to; i++ {
				for k := range left {
					left[k] = t.Scale * float64(w[RoleB][(o+i-at)*t.Rank*count+k*count+e])
				}
				row := rows[i*t.In:][:t.In]
				for j, v := range row {
					sum[j] = float64(v)
				}
				addRow(sum, left, right)
				for j := range row {
					row[j] = float32(sum[j])
				}
			}
		})
		at = until
	}
}

// stack adds Scale·B_e·A_e x to the rows with index e. A is applied to x once; each of
// ys then uses its own part of the rows of B.
func (plainLoRA) stack(l layer, index graph.Tensor, ys []graph.Tensor) []graph.Tensor {
	b, t := l.b, l.t
	e, r, out := ir.Static(t.matrices()), ir.Static(t.Rank), ir.Static(t.Out)
	down := l.param(RoleA).Reshape(e, r, ir.Static(t.In))
	up := l.param(RoleB).Reshape(out, r, e)
	h := l.x.RowsGemm(index, graph.RowsWeights{Matrices: []graph.Tensor{down}, Stacked: true}, graph.Tensor{})
	sums, at := make([]graph.Tensor, len(ys)), 0
	for i, y := range ys {
		if !y.Valid() {
			return ys
		}
		n := y.Type().Last().N
		own := up.Slice(0, at, at+n).Transpose(2, 0, 1)
		if !b.Training() {
			own = b.Precompute(fmt.Sprintf("stack.%s.%d", t.Name, at), own.Detach())
		}
		sums[i] = h.RowsGemm(index, graph.RowsWeights{Matrices: []graph.Tensor{own}, Stacked: true, Scale: b.G.Const(t.Scale, e)}, y)
		at += n
	}
	return sums
}
