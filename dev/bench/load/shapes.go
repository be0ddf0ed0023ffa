package load

import (
	"fmt"
	"io"
	"math"

	"github.com/lorafuse/lorafuse/safetensors"
)

// FullSize is the default size of the base model in bytes: 24 layers of 2048 channels in bf16, 1,112.8 MB. Its adapter
// has 74.8 MB.
const FullSize = 1_112_764_704

// MinSize is the smallest base model: that many tensors do not fit into less.
const MinSize = 200_000

// shape describes a Llama model.
type shape struct {
	layers, hidden, kv, inter, vocab int
	rank                             int // of the adapter
}

// llama returns a model of 24 layers of about the given number of bytes. Smaller models are narrower, so that the
// number of tensors is constant.
func llama(size int64) shape {
	part := math.Sqrt(float64(size) / FullSize)
	scale := func(n, multiple int) int {
		return max(int(math.Round(part*float64(n)/float64(multiple))), 1) * multiple
	}
	return shape{layers: 24, hidden: scale(2048, 8), kv: scale(256, 8), inter: scale(1792, 8), vocab: scale(32000, 8), rank: scale(32, 1)}
}

// linear is a projection of a layer.
type linear struct {
	name    string
	out, in int
}

func (s shape) linears() []linear {
	return []linear{
		{"self_attn.q_proj", s.hidden, s.hidden}, {"self_attn.k_proj", s.kv, s.hidden},
		{"self_attn.v_proj", s.kv, s.hidden}, {"self_attn.o_proj", s.hidden, s.hidden},
		{"mlp.gate_proj", s.inter, s.hidden}, {"mlp.up_proj", s.inter, s.hidden}, {"mlp.down_proj", s.hidden, s.inter},
	}
}

// base lists the tensors of the model.
func (s shape) base() []safetensors.Entry {
	entries := []safetensors.Entry{
		noisy("model.embed_tokens.weight", safetensors.BF16, s.vocab, s.hidden),
		noisy("model.norm.weight", safetensors.BF16, s.hidden),
	}
	for i := range s.layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		for _, l := range s.linears() {
			entries = append(entries, noisy(layer+l.name+".weight", safetensors.BF16, l.out, l.in))
		}
		entries = append(entries,
			noisy(layer+"input_layernorm.weight", safetensors.BF16, s.hidden),
			noisy(layer+"post_attention_layernorm.weight", safetensors.BF16, s.hidden))
	}
	return entries
}

// adapter lists the tensors of a LoRA adapter on all linear layers, as PEFT
// names them.
func (s shape) adapter() []safetensors.Entry {
	var entries []safetensors.Entry
	for i := range s.layers {
		for _, l := range s.linears() {
			name := fmt.Sprintf("base_model.model.model.layers.%d.%s.", i, l.name)
			entries = append(entries,
				noisy(name+"lora_A.weight", safetensors.F32, s.rank, l.in),
				noisy(name+"lora_B.weight", safetensors.F32, l.out, s.rank))
		}
	}
	return entries
}

// experts lists n small tensors with the names of a mixture of experts.
func experts(n int) []safetensors.Entry {
	projections := [...]string{"gate_proj", "up_proj", "down_proj"}
	entries := make([]safetensors.Entry, n)
	for i := range entries {
		layer, expert := i/384, i/3%128
		entries[i] = noisy(fmt.Sprintf("model.layers.%d.mlp.experts.%d.%s.weight", layer, expert, projections[i%3]), safetensors.BF16, 8, 8)
	}
	return entries
}

// noisy returns a tensor of small random numbers, which a disk cannot compress.
func noisy(name string, d safetensors.DType, dims ...int) safetensors.Entry {
	e := safetensors.Entry{Name: name, DType: d, Shape: dims}
	e.Write = func(w io.Writer) error {
		size, err := e.Size()
		if err != nil {
			return err
		}
		return noise(w, size)
	}
	return e
}

// noise writes n bytes: as bf16 and as f32 numbers between 2^-15 and 2.
func noise(w io.Writer, n int64) error {
	block := make([]byte, min(n, 1<<20))
	x := uint64(n)
	for i := range block {
		x = x*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
		block[i] = byte(x >> 56)
		if i%2 == 1 {
			block[i] = 0x38 | block[i]&0x87
		}
	}
	for n > 0 {
		k := min(n, int64(len(block)))
		if _, err := w.Write(block[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}
