package lora

import (
	"fmt"
	"hash/fnv"
	"math"

	"github.com/lorafuse/lorafuse/internal/linalg"
	"github.com/lorafuse/lorafuse/internal/philox"
)

// Weights holds the tensors of one target in host memory, in the layout of an adapter
// file. BBias and Magnitude are nil if the target does not use them.
type Weights struct {
	A         []float32 // [rank, in]; of a stack [matrices·rank, in]
	B         []float32 // [out, rank]; of a stack [out, rank·matrices]
	BBias     []float32 // [out]
	Magnitude []float32 // [out]
}

// NewWeights returns weights of the sizes of t, all zero.
func (t Target) NewWeights() *Weights {
	ranks := t.matrices() * t.Rank
	w := &Weights{A: make([]float32, ranks*t.In), B: make([]float32, t.Out*ranks)}
	if t.LoraBias {
		w.BBias = make([]float32, t.Out)
	}
	if t.DoRA {
		w.Magnitude = make([]float32, t.Out)
	}
	return w
}

// NeedsBase reports whether Init looks at the weight of the module.
func (t Target) NeedsBase() bool { return t.DoRA || t.MutatesBase() }

// MutatesBase reports whether the initialization removes a part from the base weight
// (PiSSA, OLoRA). The module then computes with the residual, see [Target.Residual].
func (t Target) MutatesBase() bool {
	kind, _, err := t.Init.parse()
	return err == nil && t.Kind != Embedding && t.Kind != Parameter && (kind == InitPiSSA || kind == InitOLoRA)
}

// Initialize returns the initial weights for training. They depend only on the name of
// the module, the seed and the method, not on the other targets or their order. base is
// the weight of the module in the layout of the model's file; it may be nil unless
// NeedsBase.
//
// The formulas are PEFT's: by default A is uniform in ±1/√in and B is zero (torch's
// kaiming_uniform with a = √5); gaussian draws A from a normal distribution with
// deviation 1/rank; false draws A and B from uniform distributions. For embeddings A is
// zero and B standard normal. PiSSA (arXiv 2404.02948) sets A = √(S/s)·Vᵀ, B = U·√(S/s)
// for the largest singular values S, OLoRA (arXiv 2406.01775) the first rows of R and
// columns of Q. DoRA's magnitude (arXiv 2402.09353) is the norm of each output row of
// the weight that the module computes with.
//
// Initialize fails with ErrUnsupported for a method that needs data or is unknown.
func (t Target) Initialize(seed uint64, base []float32) (*Weights, error) {
	kind, iterations, err := t.Init.parse()
	if err != nil {
		return nil, err
	}
	if t.NeedsBase() && len(base) != t.In*t.Out {
		return nil, fmt.Errorf("lora: initialize %q: the base weight has %d elements, expected %d: %w", t.Name, len(base), t.In*t.Out, ErrShape)
	}
	if t.MutatesBase() && t.Rank > min(t.In, t.Out) {
		return nil, fmt.Errorf("lora: initialize %q: rank %d of a weight of %d×%d: %w", t.Name, t.Rank, t.Out, t.In, ErrShape)
	}
	w := t.NewWeights()
	switch {
	case t.Kind == Embedding:
		// PEFT initializes embeddings the same way for all methods.
		t.draw(seed, RoleB).normal(w.B, 1)
		if kind == InitRandom {
			t.draw(seed, RoleA).normal(w.A, 1)
		}
	case kind == InitDefault:
		t.draw(seed, RoleA).uniform(w.A, 1/math.Sqrt(float64(t.In)))
	case kind == InitGaussian:
		t.draw(seed, RoleA).normal(w.A, 1/float64(t.Rank))
	case kind == InitRandom:
		bound := 1 / math.Sqrt(float64(t.matrices()*t.Rank))
		t.draw(seed, RoleA).uniform(w.A, 1/math.Sqrt(float64(t.In)))
		t.draw(seed, RoleB).uniform(w.B, bound)
		t.draw(seed, RoleBBias).uniform(w.BBias, bound)
	case kind == InitPiSSA:
		err = t.pissa(w, base, iterations, t.draw(seed, RoleA))
	case kind == InitOLoRA:
		err = t.olora(w, base)
	default:
		err = unsupported("init_lora_weights", "an adapter cannot begin by %q here, but by true, false, gaussian, pissa, pissa_niter_N or olora", t.Init)
	}
	if err != nil {
		return nil, fmt.Errorf("lora: initialize %q: %w", t.Name, err)
	}
	if t.DoRA {
		// A residual and the part taken out of it make up the base again.
		sum := &Weights{A: w.A, B: w.B}
		if t.MutatesBase() {
			sum = nil
		}
		t.magnitude(w.Magnitude, base, sum)
	}
	return w, nil
}

// pissa factors the base by its singular values.
func (t Target) pissa(w *Weights, base []float32, iterations int, random stream) error {
	m, err := t.matrix(base)
	if err != nil {
		return err
	}
	if t.Scale < 0 {
		return configError("lora_alpha", "pissa takes the square root of 1/alpha, found %v", t.Alpha)
	}
	var u, vt linalg.Matrix
	var s []float64
	if iterations < 0 {
		u, s, vt, err = linalg.SVD(m)
	} else {
		u, s, vt, err = linalg.RandomizedSVD(m, t.Rank, iterations, func(i int) float64 { return random.Normal(uint64(i)) })
	}
	if err != nil {
		return err
	}
	for k := range t.Rank {
		root := math.Sqrt(s[k] / t.Scale)
		for j, v := range vt.Row(k) {
			w.A[k*t.In+j] = float32(root * v)
		}
		for i := range t.Out {
			w.B[i*t.Rank+k] = float32(root * u.Row(i)[k])
		}
	}
	return nil
}

// olora initializes A and B with the first rows of R and columns of Q.
func (t Target) olora(w *Weights, base []float32) error {
	if t.Kind == Conv1D {
		return unsupported("init_lora_weights", "olora factors the transposed weight of a Conv1D layer in PEFT, which does not fit")
	}
	m, err := t.matrix(base)
	if err != nil {
		return err
	}
	q, r := linalg.QR(m)
	for k := range t.Rank {
		for j, v := range r.Row(k) {
			w.A[k*t.In+j] = float32(v)
		}
		for i := range t.Out {
			w.B[i*t.Rank+k] = float32(q.Row(i)[k])
		}
	}
	return nil
}

// matrix returns the weight as [out, in].
func (t Target) matrix(base []float32) (linalg.Matrix, error) {
	if t.Kind == Linear {
		return linalg.FromFloat32(base, t.Out, t.In)
	}
	m, err := linalg.FromFloat32(base, t.In, t.Out)
	return m.T(), err
}

// draw returns the random stream of one tensor of t. Half of a hash of its name is the
// step of the stream, the other half its operation.
func (t Target) draw(seed uint64, role Role) stream {
	h := fnv.New64a()
	h.Write([]byte(t.Name))
	h.Write([]byte{0, byte(role)})
	n := h.Sum64()
	return stream{philox.NewStream(seed, uint32(n>>32), uint32(n))}
}

type stream struct{ philox.Stream }

// uniform fills dst with numbers in [-bound, bound).
func (s stream) uniform(dst []float32, bound float64) {
	var words [4]uint32
	for i := range dst {
		if i%4 == 0 {
			words = s.Block(uint64(i / 4))
		}
		dst[i] = float32(bound * (2*float64(philox.Uniform(words[i%4])) - 1))
	}
}

// normal fills dst with normal numbers of mean 0.
func (s stream) normal(dst []float32, deviation float64) {
	for i := range dst {
		dst[i] = float32(deviation * s.Normal(uint64(i)))
	}
}
