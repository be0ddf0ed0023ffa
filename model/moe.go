package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

func init() {
	// Mixtral 8x7B (Jiang et al. 2024, arXiv 2401.04088): a Mistral with experts in
	// the place of MLPs.
	Register("MixtralForCausalLM", Architecture{ModelType: "mixtral", Read: readMixtral})
	Register("MixtralModel", Architecture{ModelType: "mixtral", Read: readMixtral})
	Register("MixtralForSequenceClassification", Architecture{ModelType: "mixtral", Read: readMixtral})
	// Qwen3-MoE (Yang et al. 2025, arXiv 2505.09388): a Qwen3 with experts in all
	// layers, or in some.
	Register("Qwen3MoeForCausalLM", Architecture{ModelType: "qwen3_moe", Read: readQwen3MoE})
	Register("Qwen3MoeModel", Architecture{ModelType: "qwen3_moe", Read: readQwen3MoE})
	Register("Qwen3MoeForSequenceClassification", Architecture{ModelType: "qwen3_moe", Read: readQwen3MoE})
}

// MoE is a Decoder with a mixture of experts in the place of MLPs.
type MoE struct {
	*Decoder
	Experts nn.Experts
	Plain   []bool // layers with an MLP, where it is not all
	// Balance times the loss of an uneven use of experts ([nn.Builder.Balance]) of a
	// batch is added to its mean loss in training.
	Balance float64
	// Renamed is what files may call the part of a layer that is called mlp here.
	Renamed string
}

func readMixtral(c *Config, f *Fields) Family {
	d := f.decoder(c)
	if !f.Has("rms_norm_eps") {
		d.NormEps = 1e-5
	}
	d.RoPE = f.rope(c, d.HeadDim, 1e6)
	f.slide(d, f.Int("sliding_window", 0))
	// Noise that is multiplied into what experts read while they are trained.
	if noise := f.Float("router_jitter_noise", 0); noise != 0 {
		f.Unsupported("router_jitter_noise", noise, []string{"0"})
	}
	return f.experts(&MoE{Decoder: d, Renamed: "block_sparse_moe", Experts: nn.Experts{
		Gate: "experts.%d.w1.weight", Up: "experts.%d.w3.weight", Down: "experts.%d.w2.weight",
		Count: 8, Chosen: 2, Units: d.Intermediate, Normalized: true,
	}})
}

func readQwen3MoE(c *Config, f *Fields) Family {
	d := f.decoder(c)
	d.RoPE = f.rope(c, d.HeadDim, 10000)
	d.AttentionBias = f.Bool("attention_bias", false)
	d.OutputBias = d.AttentionBias
	d.HeadNorm = true
	window := f.Int("sliding_window", 4096)
	if !f.Bool("use_sliding_window", false) {
		window = 0
	}
	f.slide(d, window)
	m := f.experts(&MoE{Decoder: d, Experts: nn.Experts{
		Gate: "experts.%d.gate_proj.weight", Up: "experts.%d.up_proj.weight", Down: "experts.%d.down_proj.weight",
		Count: 128, Chosen: 8, Units: f.Int("moe_intermediate_size", 768), Normalized: f.Bool("norm_topk_prob", false),
	}})
	step, plain := f.Int("decoder_sparse_step", 1), read(f, "mlp_only_layers", "a list of layers", []int(nil))
	if step < 1 {
		f.Fail("decoder_sparse_step", step, "1 or more")
		return m
	}
	m.Plain = make([]bool, len(d.Windows))
	for i := range m.Plain {
		m.Plain[i] = (i+1)%step != 0 || slices.Contains(plain, i)
	}
	return m
}

// experts reads the keys that mixtures of experts share.
func (f *Fields) experts(m *MoE) *MoE {
	e := &m.Experts
	e.Router, e.GateUp, e.Downs = "gate.weight", "experts.gate_up_proj", "experts.down_proj"
	e.Activation = m.Activation
	e.Count = f.Int("num_local_experts", f.Int("num_experts", e.Count))
	e.Chosen = f.Int("num_experts_per_tok", e.Chosen)
	if f.Bool("output_router_logits", false) {
		m.Balance = f.Float("router_aux_loss_coef", 0.001)
		e.Balanced = m.Balance != 0
	}
	m.MLP = m.mlp
	return m
}

// Check implements Family.
func (m *MoE) Check(c *Config) error {
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
	return m.Decoder.Check(c)
}

// maxExperts keeps a wrong number from taking all memory.
const maxExperts = 1 << 12

// Build implements Family.
func (m *MoE) Build(c *Config, b *nn.Builder) Outputs {
	out := m.Decoder.Build(c, b)
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

func (m *MoE) mlp(c *Config, b *nn.Builder, layer int, x graph.Tensor) graph.Tensor {
	if m.Plain != nil && m.Plain[layer] {
		return m.gated(c, b.Sub("mlp"), x, m.Intermediate)
	}
	return b.Sub("mlp").Experts(m.Experts, x)
}

// OtherNames implements [Renamer].
func (m *MoE) OtherNames(name string) []string {
	names := m.Decoder.OtherNames(name)
	if m.Renamed != "" {
		for _, n := range append([]string{name}, names...) {
			names = append(names, strings.Replace(n, ".mlp.", "."+m.Renamed+".", 1))
		}
	}
	return names
}
