package lora

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/linalg"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/tensor"
)

// NeedsBase reports whether Initialize looks at the weight of the module.
func (t Target) NeedsBase() bool { return t.adapter().needsBase(t) }

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
// Initialize fails with ErrUnsupported if Init is a method that needs data or is unknown.
func (t Target) Initialize(seed uint64, base []float32) (Weights, error) {
	if t.NeedsBase() && len(base) != t.In*t.Out {
		return nil, fmt.Errorf("lora: initialize %q: the base weight has %d elements, expected %d: %w", t.Name, len(base), t.In*t.Out, ErrShape)
	}
	w := t.NewWeights()
	if err := t.adapter().initialize(t, w, seed, base); err != nil {
		return nil, fmt.Errorf("lora: initialize %q: %w", t.Name, err)
	}
	return w, nil
}

// initialize follows PEFT: by default A is uniform in ±1/√in and B is zero (torch's
// kaiming_uniform with a = √5); gaussian draws A from a normal distribution with
// deviation 1/rank; false draws A and B from uniform distributions. For embeddings A is
// zero and B standard normal. PiSSA (arXiv 2404.02948) sets A = √(S/s)·Vᵀ, B = U·√(S/s)
// for the largest singular values S, OLoRA (arXiv 2406.01775) the first rows of R and
// columns of Q.
func (plainLoRA) initialize(t Target, w Weights, seed uint64, base []float32) error {
	kind, iterations, err := t.Init.parse()
	if err != nil {
		return err
	}
	if t.MutatesBase() && t.Rank > min(t.In, t.Out) {
		return fmt.Errorf("rank %d of a weight of %d×%d: %w", t.Rank, t.Out, t.In, ErrShape)
	}
	a, b, bias := t.draw(seed, 0), t.draw(seed, 1), t.draw(seed, 2)
	switch {
	case t.Kind == Embedding:
		// PEFT initializes embeddings the same way for all methods.
		b.normal(w[RoleB], 1)
		if kind == InitRandom {
			a.normal(w[RoleA], 1)
		}
	case kind == InitDefault:
		a.uniform(w[RoleA], 1/math.Sqrt(float64(t.In)))
	case kind == InitGaussian:
		a.normal(w[RoleA], 1/float64(t.Rank))
	case kind == InitRandom:
		bound := 1 / math.Sqrt(float64(t.matrices()*t.Rank))
		a.uniform(w[RoleA], 1/math.Sqrt(float64(t.In)))
		b.uniform(w[RoleB], bound)
		bias.uniform(w[RoleBBias], bound)
	case kind == InitPiSSA:
		return t.pissa(w, base, iterations, a)
	case kind == InitOLoRA:
		return t.olora(w, base)
	default:
		return unsupported("init_lora_weights", "an adapter cannot begin by %q here, but by true, false, gaussian, pissa, pissa_niter_N or olora", t.Init)
	}
	return nil
}

// pissa factors the base by its singular values.
func (t Target) pissa(w Weights, base []float32, iterations int, random stream) error {
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
			w[RoleA][k*t.In+j] = float32(root * v)
		}
		for i := range t.Out {
			w[RoleB][i*t.Rank+k] = float32(root * u.Row(i)[k])
		}
	}
	return nil
}

// olora initializes A and B with the first rows of R and columns of Q.
func (t Target) olora(w Weights, base []float32) error {
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
			w[RoleA][k*t.In+j] = float32(v)
		}
		for i := range t.Out {
			w[RoleB][i*t.Rank+k] = float32(q.Row(i)[k])
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

// Residual subtracts the initial adapter from the weight of its module: W -= Scale·B·A,
// rounded to the type in which the model holds it. PiSSA and OLoRA begin with this;
// initial is the result of Initialize.
func (t Target) Residual(weight []float32, initial Weights, d tensor.DType) error {
	if err := t.checkSizes(weight, initial); err != nil {
		return err
	}
	t.addProduct(weight, initial, -t.Scale)
	return roundTo(weight, d)
}

// Plain converts an adapter initialized by PiSSA or OLoRA to one for the original base
// weight. The result has twice the rank, A' = [A; A₀] and B' = [B, −B₀], so that s·B'A'
// = s·(BA − B₀A₀). [Config.Plain] returns its configuration.
func (t Target) Plain(trained, initial Weights) (Weights, error) {
	if t.r > t.Rank {
		return nil, unsupported("r", "%q: rank %d exceeds that of the weight, such an adapter cannot be converted", t.Name, t.r)
	}
	for _, w := range []Weights{trained, initial} {
		if err := t.checkSizes(nil, w); err != nil {
			return nil, err
		}
	}
	p := maps.Clone(trained)
	p[RoleA] = slices.Concat(trained[RoleA], initial[RoleA])
	p[RoleB] = make([]float32, 0, 2*len(trained[RoleB]))
	for i := range t.Out {
		row := i * t.Rank
		p[RoleB] = append(p[RoleB], trained[RoleB][row:row+t.Rank]...)
		for _, b := range initial[RoleB][row : row+t.Rank] {
			p[RoleB] = append(p[RoleB], -b)
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

// validate rejects methods that changed the base weights in a way that cannot be
// reproduced: such an adapter is wrong on a plain base. biased says that B has a bias.
func (m InitMethod) validate(biased bool) error {
	const key = "init_lora_weights"
	kind, _, err := m.parse()
	if err != nil {
		return err
	}
	switch kind {
	case "corda":
		return unsupported(key, "corda took its adapter out of the base weights, guided by data; save the adapter with path_initial_model_for_weight_conversion in PEFT")
	case "lora_ga":
		return unsupported(key, "lora_ga took its adapter out of the base weights, guided by gradients; save the adapter with path_initial_model_for_weight_conversion in PEFT")
	case "loftq":
		return unsupported(key, "loftq replaced the base weights by quantized ones, which are not in the adapter")
	}
	if biased && kind != InitDefault && kind != InitRandom {
		return configError("lora_bias", "it needs init_lora_weights to be true or false, found %q", m)
	}
	return nil
}

// initMethods are all methods that PEFT knows. The last three leave the base unchanged,
// so their trained adapters need no special treatment.
var initMethods = []string{"gaussian", "pissa", "olora", "corda", "lora_ga", "loftq", "eva", "orthogonal", "mica"}

// parse splits a method into its kind and, for PiSSA, the iterations of its
// randomized SVD, -1 for the exact one. PEFT overlooks the case of some names.
func (m InitMethod) parse() (kind InitMethod, iterations int, err error) {
	switch m {
	case "", InitDefault:
		return InitDefault, -1, nil
	case InitRandom:
		return InitRandom, -1, nil
	}
	if n, ok := strings.CutPrefix(string(m), "pissa_niter_"); ok {
		iterations, err := strconv.Atoi(n)
		if err != nil || iterations < 0 || iterations > 1000 {
			return "", 0, configError("init_lora_weights", "%q: the iterations must be a number from 0 to 1000", m)
		}
		return InitPiSSA, iterations, nil
	}
	lower := strings.ToLower(string(m))
	if slices.Contains(initMethods, lower) {
		return InitMethod(lower), -1, nil
	}
	return "", 0, configError("init_lora_weights", "unknown method %q%s", m, suggest.DidYouMean(string(m), initMethods))
}

// draw returns the random stream of one tensor of t. Half of a hash of the module's name and
// the tensor's number is the step of the stream, the other half its operation.
func (t Target) draw(seed uint64, number byte) stream {
	h := fnv.New64a()
	h.Write([]byte(t.Name))
	h.Write([]byte{0, number})
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
