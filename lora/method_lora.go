package lora

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// plainLoRA is LoRA (Hu et al. 2021, arXiv 2106.09685): W' = W + Scale·B·A. It adapts linear
// layers, embeddings, and stacks of matrices.
type plainLoRA struct{ baseMethod }

// MethodLoRA is the method of plain LoRA, see [Config.Method].
const MethodLoRA = "LoRA"

// The roles of LoRA's tensors, with the shapes in the file.
const (
	RoleA     Role = "A"         // lora_A [rank, in]; lora_embedding_A [rank, vocabulary]; of a stack [matrices·rank, in]
	RoleB     Role = "B"         // lora_B [out, rank]; lora_embedding_B [columns, rank]; of a stack [out, rank·matrices]
	RoleBBias Role = "bias of B" // lora_B.bias [out]
)

func (plainLoRA) name() string     { return MethodLoRA }
func (plainLoRA) peftType() string { return "LORA" }

// keys returns the keys of LoraConfig in PEFT 0.21.2, except the keys of its variants.
func (plainLoRA) keys() []field {
	return []field{
		{"alora_invocation_tokens", func(c *Config) any { return &c.AloraInvocationTokens }},
		{"alpha_pattern", func(c *Config) any { return &c.AlphaPattern }},
		{"arrow_config", func(c *Config) any { return &c.ArrowConfig }},
		{"bias", func(c *Config) any { return &c.Bias }},
		{"corda_config", func(c *Config) any { return &c.CordaConfig }},
		{"ensure_weight_tying", func(c *Config) any { return &c.EnsureWeightTying }},
		{"eva_config", func(c *Config) any { return &c.EvaConfig }},
		{"fan_in_fan_out", func(c *Config) any { return &c.FanInFanOut }},
		{"init_lora_weights", func(c *Config) any { return &c.InitLoraWeights }},
		{"kasa_config", func(c *Config) any { return &c.KasaConfig }},
		{"layer_replication", func(c *Config) any { return &c.LayerReplication }},
		{"loftq_config", func(c *Config) any { return &c.LoftqConfig }},
		{"lora_alpha", func(c *Config) any { return (*alpha)(&c.LoraAlpha) }},
		{"lora_bias", func(c *Config) any { return &c.LoraBias }},
		{"lora_dropout", func(c *Config) any { return &c.LoraDropout }},
		{"lora_ga_config", func(c *Config) any { return &c.LoraGAConfig }},
		{"megatron_config", func(c *Config) any { return &c.MegatronConfig }},
		{"megatron_core", func(c *Config) any { return &c.MegatronCore }},
		{"monteclora_config", func(c *Config) any { return &c.MontecloraConfig }},
		{"qalora_group_size", func(c *Config) any { return &c.QaloraGroupSize }},
		{"r", func(c *Config) any { return &c.R }},
		{"rank_pattern", func(c *Config) any { return &c.RankPattern }},
		{"target_parameters", func(c *Config) any { return &c.TargetParameters }},
		{"trainable_token_indices", func(c *Config) any { return &c.TrainableTokenIndices }},
		{"use_bdlora", func(c *Config) any { return &c.UseBDLoRA }},
		{"use_qalora", func(c *Config) any { return &c.UseQALoRA }},
		{"use_rslora", func(c *Config) any { return &c.UseRSLoRA }},
		{"velora_config", func(c *Config) any { return &c.VeloraConfig }},
	}
}

// validate rejects initializations that change the base weights in a way that cannot be reproduced,
// and variants of LoRA that are not computed here.
func (plainLoRA) validate(c *Config) error {
	if err := c.InitLoraWeights.validate(c.LoraBias); err != nil {
		return err
	}
	for _, m := range []struct {
		key string
		set bool
		why string
	}{
		{"alora_invocation_tokens", c.AloraInvocationTokens.IsSet(), "activated LoRA works on the tokens behind an invocation only"},
		{"arrow_config", c.ArrowConfig.IsSet(), "Arrow routes between several adapters"},
		{"kasa_config", c.KasaConfig.IsSet(), "KaSA truncates the base weights and puts a diagonal between A and B"},
		{"layer_replication", c.LayerReplication.IsSet(), "it builds a model of other layers than the base has"},
		{"megatron_config", c.MegatronConfig.IsSet(), "it is for the parallel layers of Megatron"},
		{"monteclora_config", c.MontecloraConfig.IsSet(), "MonteCLoRA adds samples to the adapter"},
		{"use_bdlora", c.UseBDLoRA.IsSet(), "BD-LoRA has block-diagonal factors"},
		{"use_qalora", c.UseQALoRA, "QALoRA pools the inputs of quantized layers"},
		{"velora_config", c.VeloraConfig.IsSet(), "VeLoRA compresses the activations that backward needs"},
	} {
		if m.set {
			return unsupported(m.key, "%s", m.why)
		}
	}
	return nil
}

func (plainLoRA) accept(c *Config, m Module) error {
	switch m.Kind {
	case Linear, Conv1D, Parameter:
	case Embedding:
		if c.LoraBias {
			return unsupported("lora_bias", "%s, has none", describeModule(m.Name, m.Kind))
		}
	default:
		return unsupported("target_modules", "it matches %s; linear layers and embeddings can be targeted", describeModule(m.Name, m.Kind))
	}
	return nil
}

func (plainLoRA) scale(c *Config, t Target) float64 { return scale(t.Alpha, t.Rank, c.UseRSLoRA) }

func (plainLoRA) parts() []part {
	return []part{
		{role: RoleA, end: ".lora_A.weight", ofEmbedding: ".lora_embedding_A", factor: true},
		{role: RoleB, end: ".lora_B.weight", ofEmbedding: ".lora_embedding_B", factor: true},
		{role: RoleBBias, end: ".lora_B.bias", set: func(c *Config) { c.LoraBias = true }},
	}
}

func (plainLoRA) shape(t Target, r Role) []int {
	ranks := t.matrices() * t.Rank
	switch {
	case r == RoleA:
		return []int{ranks, t.In}
	case r == RoleB:
		return []int{t.Out, ranks}
	case r == RoleBBias && t.LoraBias:
		return []int{t.Out}
	}
	return nil
}

func (plainLoRA) needsBase(t Target) bool { return t.MutatesBase() }

func (plainLoRA) additive() bool { return true }

func (plainLoRA) terms(l layer) (terms, bool) {
	x := terms{down: l.param(RoleA), up: l.param(RoleB), scale: l.t.Scale}
	if l.t.LoraBias {
		x.shift = func() graph.Tensor { return l.param(RoleBBias).Scale(l.t.Scale) }
	}
	return x, true
}

func (plainLoRA) embedding(l layer, ids graph.Tensor) graph.Tensor {
	b, down, up := l.b, l.param(RoleA), l.param(RoleB)
	table := down.Transpose(1, 0)
	if !b.Training() {
		table = b.Precompute("rows."+l.t.Name, table.Detach())
	}
	h := b.WithoutPadding(l.m, ids, table.Gather(ids))
	return b.G.Gemm([]ir.Product{{A: h.Value(), B: up.Value(), TB: true, Alpha: float32(l.t.Scale)}}, graph.Tensor{}, l.w.Gather(ids))
}

func (plainLoRA) merge(t Target, weight []float32, w Weights) {
	if t.Kind == Parameter {
		t.addStack(weight, 0, w)
		return
	}
	t.addProduct(weight, w, t.Scale)
}

func (plainLoRA) mergeBias(t Target) (func([]float32, Weights) error, error) {
	switch {
	case !t.LoraBias:
		return nil, nil
	case !t.Bias:
		return nil, unsupported("lora_bias", "%q has no bias to merge that of B into", t.Name)
	}
	return t.MergeBias, nil
}

// MergeBias adds the adapter's bias to the bias of its module: bias += Scale·(bias of
// B).
func (t Target) MergeBias(bias []float32, w Weights) error {
	b := w[RoleBBias]
	if b == nil {
		return nil
	}
	if len(bias) != t.Out || len(b) != t.Out {
		return fmt.Errorf("lora: merge the bias of %q: %d and %d elements, expected %d: %w", t.Name, len(bias), len(b), t.Out, ErrShape)
	}
	for i, v := range b {
		bias[i] = float32(float64(bias[i]) + t.Scale*float64(v))
	}
	return nil
}

// addProduct adds scale·B·A, transposed if the weight is stored as [in, out].
func (t Target) addProduct(weight []float32, w Weights, scale float64) {
	left, right := widen(w[RoleB]), widen(w[RoleA]) // [out, rank], [rank, in]
	rows, cols := t.Out, t.In
	if t.Kind != Linear {
		left, right = transposed(w[RoleA], t.Rank, t.In), transposed(w[RoleB], t.Out, t.Rank) // [in, rank], [rank, out]
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
