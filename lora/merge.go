package lora

import (
	"fmt"
	"math"
	"runtime"

	"github.com/lorafuse/lorafuse/internal/fork"
	"github.com/lorafuse/lorafuse/tensor"
)

// MergeInto adds the adapter to the weight of its module, or to the whole stack of
// matrices: W += Scale·B·A. With DoRA it then computes W = m·W/‖W‖ for each output row
// (column on Conv1D layers and embeddings). weight has the layout of the model's file
// and must be unmerged; with PiSSA or OLoRA it is the residual. Sums are accumulated in
// float64 in a fixed order.
//
// It fails with ErrShape if a size does not fit, and with ErrNotFinite if the result is
// not finite.
func (t Target) MergeInto(weight []float32, w *Weights) error {
	if err := t.checkSizes(weight, w); err != nil {
		return err
	}
	if t.Kind == Parameter {
		t.addStack(weight, 0, w)
	} else {
		t.addProduct(weight, w, t.Scale)
	}
	if t.DoRA {
		t.normalize(weight, w.Magnitude)
	}
	return t.checkMerged(weight)
}

func (t Target) checkMerged(weight []float32) error {
	for i, v := range weight {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("lora: merge %q: element %d becomes %v: %w", t.Name, i, v, ErrNotFinite)
		}
	}
	return nil
}

// MergeBias adds the adapter's bias to the bias of its module: bias += Scale·(bias of
// B).
func (t Target) MergeBias(bias []float32, w *Weights) error {
	if w.BBias == nil {
		return nil
	}
	if len(bias) != t.Out || len(w.BBias) != t.Out {
		return fmt.Errorf("lora: merge the bias of %q: %d and %d elements, expected %d: %w", t.Name, len(bias), len(w.BBias), t.Out, ErrShape)
	}
	for i, b := range w.BBias {
		bias[i] = float32(float64(bias[i]) + t.Scale*float64(b))
	}
	return nil
}

// Residual subtracts the initial adapter from the weight of its module: W -= Scale·B·A,
// rounded to the type in which the model holds it. PiSSA and OLoRA begin with this;
// initial is the result of Initialize.
func (t Target) Residual(weight []float32, initial *Weights, d tensor.DType) error {
	if err := t.checkSizes(weight, initial); err != nil {
		return err
	}
	t.addProduct(weight, initial, -t.Scale)
	return roundTo(weight, d)
}

// Plain converts an adapter initialized by PiSSA or OLoRA to one for the original base
// weight. The result has twice the rank, A' = [A; A₀] and B' = [B, −B₀], so that s·B'A'
// = s·(BA − B₀A₀). [Config.Plain] returns its configuration.
func (t Target) Plain(trained, initial *Weights) (*Weights, error) {
	if t.r > t.Rank {
		return nil, unsupported("r", "%q: rank %d exceeds that of the weight, such an adapter cannot be converted", t.Name, t.r)
	}
	for _, w := range []*Weights{trained, initial} {
		if err := t.checkSizes(nil, w); err != nil {
			return nil, err
		}
	}
	p := &Weights{BBias: trained.BBias, Magnitude: trained.Magnitude}
	p.A = append(append(make([]float32, 0, 2*len(trained.A)), trained.A...), initial.A...)
	p.B = make([]float32, 0, 2*len(trained.B))
	for i := range t.Out {
		row := i * t.Rank
		p.B = append(p.B, trained.B[row:row+t.Rank]...)
		for _, b := range initial.B[row : row+t.Rank] {
			p.B = append(p.B, -b)
		}
	}
	return p, nil
}

// Plain returns the configuration of an adapter whose targets were converted by
// [Target.Plain]. Ranks and alphas are doubled (alpha times √2 with rank-stabilized
// LoRA) to preserve the scales, and init_lora_weights is true. Like PEFT, it rejects
// rank-stabilized LoRA with rank or alpha patterns.
func (c *Config) Plain() (*Config, error) {
	if c.UseRSLoRA && (len(c.RankPattern) > 0 || len(c.AlphaPattern) > 0) {
		return nil, unsupported("use_rslora", "with rank_pattern or alpha_pattern the adapter cannot be converted for the unchanged base")
	}
	p := c.Clone()
	p.InitLoraWeights = InitDefault
	p.R *= 2
	if c.UseRSLoRA {
		p.LoraAlpha *= math.Sqrt2
	} else {
		p.LoraAlpha *= 2
	}
	for i := range p.RankPattern {
		p.RankPattern[i].R *= 2
	}
	for i := range p.AlphaPattern {
		p.AlphaPattern[i].Alpha *= 2
	}
	return p, nil
}

// MergeTokens copies the trained rows into weight, which has the rows of an embedding
// or a head. rows has one row for each of t.Tokens.
func (t TokenPlacement) MergeTokens(weight, rows []float32) error {
	n := t.columns()
	if len(weight) != t.In*t.Out || len(rows) != n*len(t.Tokens) {
		return fmt.Errorf("lora: merge the tokens of %q: %d elements into %d, expected %d into %d: %w",
			t.Name, len(rows), len(weight), n*len(t.Tokens), t.In*t.Out, ErrShape)
	}
	for i, token := range t.Tokens {
		copy(weight[token*n:(token+1)*n], rows[i*n:(i+1)*n])
	}
	return nil
}

// checkSizes compares lengths; a nil weight is not looked at.
func (t Target) checkSizes(weight []float32, w *Weights) error {
	wrong := func(what string, found, want int) error {
		return fmt.Errorf("lora: %q: %s has %d elements, expected %d: %w", t.Name, what, found, want, ErrShape)
	}
	ranks := t.matrices() * t.Rank
	switch {
	case weight != nil && len(weight) != t.matrices()*t.In*t.Out:
		return wrong("the weight", len(weight), t.matrices()*t.In*t.Out)
	case len(w.A) != ranks*t.In:
		return wrong("A", len(w.A), ranks*t.In)
	case len(w.B) != t.Out*ranks:
		return wrong("B", len(w.B), t.Out*ranks)
	case t.DoRA && len(w.Magnitude) != t.Out:
		return wrong("the magnitude", len(w.Magnitude), t.Out)
	}
	return nil
}

// addProduct adds scale·B·A, transposed if the weight is stored as [in, out].
func (t Target) addProduct(weight []float32, w *Weights, scale float64) {
	left, right := widen(w.B), widen(w.A) // [out, rank], [rank, in]
	rows, cols := t.Out, t.In
	if t.Kind != Linear {
		left, right = transposed(w.A, t.Rank, t.In), transposed(w.B, t.Out, t.Rank) // [in, rank], [rank, out]
		rows, cols = t.In, t.Out
	}
	for i := range left {
		left[i] *= scale
	}
	eachRange(rows, func(from, to int) {
		sum := make([]float64, cols)
		for i := from; i < to; i++ {
			row := weight[i*cols : (i+1)*cols]
			for j, v := range row {
				sum[j] = float64(v)
			}
			addRow(sum, left[i*t.Rank:(i+1)*t.Rank], right)
			for j := range row {
				row[j] = float32(sum[j])
			}
		}
	})
}

// addRow adds the product of a row vector and a matrix of len(sum) columns. It
// processes four rows of the matrix at a time, to keep the sums in registers, and adds
// in row order. The conversions prevent compilers from fusing operations, which would
// change bits between architectures.
func addRow(sum, left, right []float64) {
	n := len(sum)
	k := 0
	for ; k+4 <= len(left); k += 4 {
		l0, l1, l2, l3 := left[k], left[k+1], left[k+2], left[k+3]
		r0, r1, r2, r3 := right[k*n:][:n], right[(k+1)*n:][:n], right[(k+2)*n:][:n], right[(k+3)*n:][:n]
		for j := range sum {
			s := sum[j] + float64(l0*r0[j])
			s += float64(l1 * r1[j])
			s += float64(l2 * r2[j])
			sum[j] = s + float64(l3*r3[j])
		}
	}
	for ; k < len(left); k++ {
		l, r := left[k], right[k*n:][:n]
		for j := range sum {
			sum[j] += float64(l * r[j])
		}
	}
}

// magnitude sets dst to the norm of each output of the weight, to which the
// adapter is added if there is one.
func (t Target) magnitude(dst, weight []float32, w *Weights) {
	if w != nil {
		weight = append([]float32(nil), weight...)
		t.addProduct(weight, w, t.Scale)
	}
	for i, n := range t.norms(weight) {
		dst[i] = float32(n)
	}
}

// normalize scales every output to the norm in m.
func (t Target) normalize(weight, m []float32) {
	factor := t.norms(weight)
	for i, n := range factor {
		factor[i] = float64(m[i]) / n
	}
	for i, v := range weight {
		o := i % t.Out
		if t.Kind == Linear {
			o = i / t.In
		}
		weight[i] = float32(float64(v) * factor[o])
	}
}

// norms returns the Euclidean norms of the outputs: rows of [out, in], columns of [in,
// out].
func (t Target) norms(weight []float32) []float64 {
	squares := make([]float64, t.Out)
	for i, v := range weight {
		o := i % t.Out
		if t.Kind == Linear {
			o = i / t.In
		}
		squares[o] += float64(v) * float64(v)
	}
	for i, s := range squares {
		squares[i] = math.Sqrt(s)
	}
	return squares
}

func widen(src []float32) []float64 {
	dst := make([]float64, len(src))
	for i, v := range src {
		dst[i] = float64(v)
	}
	return dst
}

// transposed widens a matrix of rows·cols elements and transposes it.
func transposed(src []float32, rows, cols int) []float64 {
	dst := make([]float64, len(src))
	for i := range rows {
		for j := range cols {
			dst[j*rows+i] = float64(src[i*cols+j])
		}
	}
	return dst
}

// eachRange splits n rows among the processors. Every row is computed by one
// of them, so that the result does not depend on their number.
func eachRange(n int, do func(from, to int)) {
	workers := min(runtime.GOMAXPROCS(0), max(n, 1))
	var wg fork.Group
	for k := range workers {
		wg.Go(func() { do(k*n/workers, (k+1)*n/workers) })
	}
	wg.Wait()
}

// roundTo rounds values to the precision of d.
func roundTo(values []float32, d tensor.DType) error {
	if d == tensor.F32 {
		return nil
	}
	if !d.IsFloat() {
		return fmt.Errorf("lora: a base weight of type %v: %w", d, ErrDType)
	}
	bytes := make([]byte, len(values)*d.Bits()/8)
	if err := tensor.FromFloat32(bytes, values, d); err != nil {
		return err
	}
	return tensor.ToFloat32(values, bytes, d)
}
