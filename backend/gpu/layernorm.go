package gpu

import "github.com/lorafuse/lorafuse/internal/ir"

// prepareLayerNorm plans a LayerNorm or its gradient, which has no bias. An absent weight or bias is a null pointer.
func prepareLayerNorm(c *compiler, l *ir.Launch) (step, error) {
	a, out := l.Attr.(ir.LayerNormAttr), l.Out[0]
	name, values, more := "layer_norm", []string{"out", "x"}, []string{"w", "b"}
	if l.Op == ir.LayerNormGrad {
		name, values, more = "layer_norm_grad", []string{"dx", "dy", "x"}, []string{"w"}
	}
	stored := narrow(append([]ir.Ref{out}, l.In[:len(values)-1]...)...)
	by, err := c.byRows("layer_norm", name, form(stored))
	if err != nil {
		return nil, err
	}
	present := []bool{a.HasWeight, a.HasBias}
	return func(r *Run) {
		rows, d := r.matrix(out)
		k := by.begin(rows, d).pointer(values[0], r.at(out))
		ins := l.In
		for _, v := range values[1:] {
			k.pointer(v, r.at(ins[0]))
			ins = ins[1:]
		}
		for i, v := range more {
			if !present[i] {
				k.pointer(v, 0)
				continue
			}
			k.pointer(v, r.at(ins[0]))
			ins = ins[1:]
		}
		by.sizes(k, rows, "d", d).float("eps", a.Eps).stored(stored)
	}, nil
}
