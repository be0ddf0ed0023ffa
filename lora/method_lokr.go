package lora

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// lokr is LoKr (Edalati et al. 2022, arXiv 2212.10650; as in LyCORIS): Δ = W₁⊗W₂, the Kronecker product of two matrices.
// W₂ is a product of two matrices of the rank if this is less than half of its longer side, and with decompose_both so is
// W₁.
type lokr struct{ lycoris }

func init() { methods = append(methods, lokr{}) }

// The roles of LoKr's tensors, with the shapes in the file.
const (
	roleK1  Role = "lokr_w1"   // [outer rows, outer columns]
	roleK1A Role = "lokr_w1_a" // [outer rows, rank]
	roleK1B Role = "lokr_w1_b" // [rank, outer columns]
	roleK2  Role = "lokr_w2"   // [inner rows, inner columns]
	roleK2A Role = "lokr_w2_a" // [inner rows, rank]
	roleK2B Role = "lokr_w2_b" // [rank, inner columns]
)

func (lokr) name() string     { return "LoKr" }
func (lokr) peftType() string { return "LOKR" }

func (m lokr) keys() []field {
	own := func(c *Config) *lycorisSettings { return c.own.(*lycorisSettings) }
	return append(m.lycoris.keys(),
		field{"decompose_both", func(c *Config) any { return &own(c).decomposeBoth }},
		field{"decompose_factor", func(c *Config) any { return &own(c).decomposeFactor }},
		field{"rank_dropout_scale", func(c *Config) any { return &own(c).dropoutScale }},
	)
}

// initLyCORIS is the value of init_weights for the initial values of LyCORIS: W₂ instead of W₁ is zero.
const initLyCORIS InitMethod = "lycoris"

func (m lokr) validate(c *Config) error {
	if i := c.InitLoraWeights; i != InitDefault && i != InitRandom && i != initLyCORIS && i != "" {
		return unsupported("init_weights", "found %q, expected true, false or %q", i, initLyCORIS)
	}
	if f := lycorisOf(c.own).decomposeFactor; f == 0 || f < -1 {
		return configError("decompose_factor", "found %d, expected -1, or 1 and more", f)
	}
	return m.lycoris.validate(c)
}

func (lokr) parts() []part {
	var all []part
	for _, r := range []Role{roleK1, roleK1A, roleK1B, roleK2, roleK2A, roleK2B} {
		all = append(all, part{role: r, end: "." + string(r), factor: true})
	}
	return all
}

// kronecker holds the sizes of the factors of a target.
type kronecker struct {
	rows1, rows2, columns1, columns2 int
	whole1, whole2                   bool // W₁ and W₂ are not decomposed
}

// kronecker returns the sizes that PEFT and LyCORIS choose for a layer.
func (lokr) kronecker(t Target) (k kronecker) {
	s := lycorisOf(t.own)
	k.rows1, k.rows2 = Factorize(t.Out, s.decomposeFactor)
	k.columns1, k.columns2 = Factorize(t.In, s.decomposeFactor)
	k.whole1 = !s.decomposeBoth || 2*t.Rank >= max(k.rows1, k.columns1)
	k.whole2 = 2*t.Rank >= max(k.rows2, k.columns2)
	return k
}

// Factorize returns two factors of n: factor and n/factor if n is a multiple of factor. Otherwise it returns the pair
// nearest to the root of n, the smaller one first and at most factor; -1 sets no limit.
func Factorize(n, factor int) (int, int) {
	if factor > 0 && n%factor == 0 {
		return factor, n / factor
	}
	if factor == -1 {
		factor = n
	}
	a, b := 1, n
	sum := a + b
	for a < b {
		next := a + 1
		for n%next != 0 {
			next++
		}
		if next+n/next > sum || next > factor {
			break
		}
		a, b = next, n/next
	}
	return min(a, b), max(a, b)
}

func (m lokr) shape(t Target, r Role) []int {
	k := m.kronecker(t)
	switch {
	case r == roleK1 && k.whole1:
		return []int{k.rows1, k.columns1}
	case r == roleK1A && !k.whole1:
		return []int{k.rows1, t.Rank}
	case r == roleK1B && !k.whole1:
		return []int{t.Rank, k.columns1}
	case r == roleK2 && k.whole2:
		return []int{k.rows2, k.columns2}
	case r == roleK2A && !k.whole2:
		return []int{k.rows2, t.Rank}
	case r == roleK2B && !k.whole2:
		return []int{t.Rank, k.columns2}
	}
	return nil
}

// initialize follows PEFT: all matrices are uniform as those of linear layers, except that W₁ or its left factor is zero,
// with lycoris W₂ or its right factor, and with false none.
func (m lokr) initialize(t Target, w Weights, seed uint64, _ []float32) error {
	zero := []Role{roleK1, roleK1A}
	switch t.Init {
	case initLyCORIS:
		zero = []Role{roleK2, roleK2B}
	case InitRandom:
		zero = nil
	}
	for i, p := range m.parts() {
		if x := w[p.role]; x != nil && !slices.Contains(zero, p.role) {
			t.draw(seed, byte(i)).uniform(x, bound(m.shape(t, p.role)[1]))
		}
	}
	return nil
}

// unitName returns the name of the constant identity matrix of that size.
func unitName(n int) string { return fmt.Sprintf("unit.%d", n) }

// constants returns the identity matrix of terms.
func (m lokr) constants(t Target, _ func() ([]float32, error)) (map[string]*tensor.Tensor, error) {
	n := m.kronecker(t).columns1
	unit := make([]float32, n*n)
	for i := range n {
		unit[i*n+i] = 1
	}
	x, err := float32Tensor(unit, n, n)
	return map[string]*tensor.Tensor{unitName(n): &x}, err
}

// terms returns Δ = (W₁⊗A₂)·(I⊗B₂) for W₂ = A₂·B₂, if this has fewer columns than the weight.
func (m lokr) terms(l layer) (terms, bool) {
	k := m.kronecker(l.t)
	width := k.columns1 * l.t.Rank
	if k.whole2 || width > min(l.t.In, l.t.Out) || m.trainable(l) != nil {
		return terms{}, false
	}
	up := kron(m.first(l, k), l.param(roleK2A), k.rows1, k.columns1, k.rows2, l.t.Rank)
	down := kron(l.constant(unitName(k.columns1)), l.param(roleK2B), k.columns1, k.columns1, l.t.Rank, k.columns2)
	return terms{down: down, up: up, scale: l.t.Scale}, true
}

// first returns W₁.
func (m lokr) first(l layer, k kronecker) graph.Tensor {
	if k.whole1 {
		return l.param(roleK1)
	}
	return l.param(roleK1A).MatMul(l.param(roleK1B))
}

// kron returns the Kronecker product of a [p, q] and b [r, s].
func kron(a, b graph.Tensor, p, q, r, s int) graph.Tensor {
	one := ir.Static(1)
	x := a.Reshape(ir.Static(p), one, ir.Static(q), one).Mul(b.Reshape(one, ir.Static(r), one, ir.Static(s)))
	return x.Reshape(ir.Static(p*r), ir.Static(q*s))
}

func (m lokr) linear(l layer) graph.Tensor {
	k := m.kronecker(l.t)
	second := graph.Tensor{}
	if k.whole2 {
		second = l.param(roleK2)
	} else {
		second = l.param(roleK2A).MatMul(l.param(roleK2B))
	}
	return m.sum(l, kron(m.first(l, k), second, k.rows1, k.columns1, k.rows2, k.columns2))
}

func (m lokr) merge(t Target, weight []float32, w Weights) {
	k := m.kronecker(t)
	first, second := widen(w[roleK1]), widen(w[roleK2])
	if !k.whole1 {
		first = product(w[roleK1A], w[roleK1B], k.rows1, t.Rank, k.columns1)
	}
	if !k.whole2 {
		second = product(w[roleK2A], w[roleK2B], k.rows2, t.Rank, k.columns2)
	}
	eachRange(t.Out, func(from, to int) {
		for o := from; o < to; o++ {
			row := weight[o*t.In : (o+1)*t.In]
			left, right := first[o/k.rows2*k.columns1:], second[o%k.rows2*k.columns2:]
			for i := range row {
				row[i] = float32(float64(row[i]) + float64(t.Scale*left[i/k.columns2]*right[i%k.columns2]))
			}
		}
	})
}

// product returns a·b for a [rows, rank] and b [rank, columns].
func product(a, b []float32, rows, rank, columns int) []float64 {
	left, right, out := widen(a), widen(b), make([]float64, rows*columns)
	for i := range rows {
		addRow(out[i*columns:(i+1)*columns], left[i*rank:(i+1)*rank], right)
	}
	return out
}
