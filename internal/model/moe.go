package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

func init() {
	registerDecoder("mixtral", readMixtral, "MixtralForCausalLM", "MixtralModel", "MixtralForSequenceClassification")
	registerDecoder("qwen3_moe", readQwen3MoE, "Qwen3MoeForCausalLM", "Qwen3MoeModel", "Qwen3MoeForSequenceClassification")
}

// mixtral is Mixtral 8x7B (Jiang et al. 2024, arXiv 2401.04088): a Mistral with experts in
// place of MLPs.
type mixtral struct {
	decoder
	Mixture
	Window int
}

func readMixtral(c *Config, f *Fields) Family {
	m := &mixtral{decoder: f.decoder(c)}
	if !f.Has("rms_norm_eps") {
		m.NormEps = 1e-5
	}
	m.RoPE = f.rope(c, m.HeadDim, 1e6)
	m.Window = f.slidingWindow(&m.decoder, 0)
	// During training, router jitter multiplies the experts' input by noise. It is not
	// supported.
	if noise := f.Float("router_jitter_noise", 0); noise != 0 {
		f.Unsupported("router_jitter_noise", noise, []string{"0"})
	}
	m.Mixture = f.mixture(nn.Experts{
		Gate: "experts.%d.w1.weight", Up: "experts.%d.w3.weight", Down: "experts.%d.w2.weight",
		Count: 8, Chosen: 2, Units: m.Intermediate, Activation: m.Activation, Normalized: true,
	})
	return m
}

// Check implements Family.
func (m *mixtral) Check(c *Config) error {
	if err := m.Mixture.check(); err != nil {
		return err
	}
	return m.decoder.Check(c)
}

// Build implements Family.
func (m *mixtral) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, false)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		h = l.attention(a, q, k, v, m.scores(m.Window))
		x = a.Linear("o_proj", h, c.HiddenSize, false).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		return b.Sub("mlp").Experts(m.Experts, h).Add(x)
	})
	return m.balanced(b, l.outputs(l.body.RMSNorm("norm", x, m.NormEps)))
}

// OtherNames implements [Renamer]: files may call the experts of a layer block_sparse_moe.
func (m *mixtral) OtherNames(name string) []string {
	names := m.decoder.OtherNames(name)
	for _, n := range append([]string{name}, names...) {
		names = append(names, strings.Replace(n, ".mlp.", ".block_sparse_moe.", 1))
	}
	return names
}

// qwen3MoE is Qwen3-MoE (Yang et al. 2025, arXiv 2505.09388): a Qwen3 with experts in all
// layers or in some.
type qwen3MoE struct {
	decoder
	Mixture
	AttentionBias bool
	Window        int
	Plain         []bool // layers with an MLP in place of experts
}

func readQwen3MoE(c *Config, f *Fields) Family {
	m := &qwen3MoE{decoder: f.decoder(c)}
	m.RoPE = f.rope(c, m.HeadDim, 10000)
	m.AttentionBias = f.Bool("attention_bias", false)
	if f.Bool("use_sliding_window", false) {
		m.Window = f.slidingWindow(&m.decoder, 4096)
	}
	m.Mixture = f.mixture(nn.Experts{
		Gate: "experts.%d.gate_proj.weight", Up: "experts.%d.up_proj.weight", Down: "experts.%d.down_proj.weight",
		Count: 128, Chosen: 8, Units: f.Int("moe_intermediate_size", 768), Activation: m.Activation, Normalized: f.Bool("norm_topk_prob", false),
	})
	m.Plain = f.plainLayers(c)
	return m
}

// plainLayers reports for each layer whether it has an MLP in place of experts.
func (f *Fields) plainLayers(c *Config) []bool {
	step, plain := f.Int("decoder_sparse_step", 1), read(f, "mlp_only_layers", "a list of layers", []int(nil))
	if step < 1 {
		f.Fail("decoder_sparse_step", step, "1 or more")
		return nil
	}
	layers := make([]bool, max(0, c.Layers))
	for i := range layers {
		layers[i] = (i+1)%step != 0 || slices.Contains(plain, i)
	}
	return layers
}

// Check implements Family.
func (m *qwen3MoE) Check(c *Config) error {
	if err := m.Mixture.check(); err != nil {
		return err
	}
	return m.decoder.Check(c)
}

// Build implements Family.
func (m *qwen3MoE) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, m.AttentionBias)
		q, k = m.headNorm(a, "q_norm", q, 0), m.headNorm(a, "k_norm", k, 0)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		h = l.attention(a, q, k, v, m.scores(m.Window))
		x = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		if m.Plain[i] {
			return m.gatedMLP(b.Sub("mlp"), h, false).Add(x)
		}
		return b.Sub("mlp").Experts(m.Experts, h).Add(x)
	})
	return m.balanced(b, l.outputs(l.body.RMSNorm("norm", x, m.NormEps)))
}

// Mixture is a mixture of experts in place of the MLPs of a decoder.
type Mixture struct {
	Experts nn.Experts
	// Balance times the loss of an uneven use of experts ([nn.Builder.Balance]) of a
	// batch is added to its mean loss in training.
	Balance float64
}

// Mixture returns the mixture of experts of the model, or nil if it has none.
func (c *Config) Mixture() *Mixture {
	if m, ok := c.Family.(interface{ mixture() *Mixture }); ok {
		return m.mixture()
	}
	return nil
}

func (m *Mixture) mixture() *Mixture { return m }

// mixture reads the keys that mixtures of experts share; e holds their defaults.
func (f *Fields) mixture(e nn.Experts) Mixture {
	e.Router, e.GateUp, e.Downs = "gate.weight", "experts.gate_up_proj", "experts.down_proj"
	e.Count = f.Int("num_local_experts", f.Int("num_experts", e.Count))
	e.Chosen = f.Int("num_experts_per_tok", e.Chosen)
	m := Mixture{Experts: e}
	if f.Bool("output_router_logits", false) {
		m.Balance = f.Float("router_aux_loss_coef", 0.001)
		m.Experts.Balanced = m.Balance != 0
	}
	return m
}

// maxExperts keeps a wrong number from taking all memory.
const maxExperts = 1 << 12

func (m *Mixture) check() error {
	e := m.Experts
	if err := CheckSizes(Size{"num_local_experts", e.Count}, Size{"num_experts_per_tok", e.Chosen}, Size{"moe_intermediate_size", e.Units}); err != nil {
		return err
	}
	if e.Count > maxExperts {
		return fmt.Errorf("%w: num_local_experts: found %d, expected %d at most", ErrConfig, e.Count, maxExperts)
	}
	if e.Chosen > e.Count {
		return fmt.Errorf("%w: num_experts_per_tok: found %d, expected at most num_local_experts %d", ErrConfig, e.Chosen, e.Count)
	}
	return nil
}

// balanced adds to the loss of next tokens in training that of an uneven use of experts.
func (m *Mixture) balanced(b *nn.Builder, out Outputs) Outputs {
	loss := out.Losses[NextToken]
	if m.Balance == 0 || loss == nil || !b.Training() {
		return out
	}
	// The loss of a step is divided by its labels: that of each batch counts whole.
	out.balance = func(sum graph.Tensor) graph.Tensor {
		balance := b.Balance()
		if !balance.Valid() {
			return sum
		}
		return sum.Add(balance.Scale(m.Balance).Mul(b.Input(nn.StepLabels, tensor.F32)))
	}
	out.loss(NextToken, func() graph.Tensor { return out.Balanced(loss()) })
	return out
}
