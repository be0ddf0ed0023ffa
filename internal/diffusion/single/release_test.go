package single_test

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// Layers of the first releases, and what diffusers made of them, written out: a line is a
// tensor without its end, then the tensors whose rows it has; ~ stands before one whose
// halves are swapped.
var releases = map[string]string{
	"FluxTransformer2DModel": `
img_in x_embedder
txt_in context_embedder
time_in.in_layer time_text_embed.timestep_embedder.linear_1
time_in.out_layer time_text_embed.timestep_embedder.linear_2
vector_in.in_layer time_text_embed.text_embedder.linear_1
vector_in.out_layer time_text_embed.text_embedder.linear_2
guidance_in.in_layer time_text_embed.guidance_embedder.linear_1
guidance_in.out_layer time_text_embed.guidance_embedder.linear_2
double_blocks.#.img_mod.lin transformer_blocks.#.norm1.linear
double_blocks.#.txt_mod.lin transformer_blocks.#.norm1_context.linear
double_blocks.#.img_attn.qkv transformer_blocks.#.attn.to_q transformer_blocks.#.attn.to_k transformer_blocks.#.attn.to_v
double_blocks.#.txt_attn.qkv transformer_blocks.#.attn.add_q_proj transformer_blocks.#.attn.add_k_proj transformer_blocks.#.attn.add_v_proj
double_blocks.#.img_attn.norm.query_norm transformer_blocks.#.attn.norm_q
double_blocks.#.img_attn.norm.key_norm transformer_blocks.#.attn.norm_k
double_blocks.#.txt_attn.norm.query_norm transformer_blocks.#.attn.norm_added_q
double_blocks.#.txt_attn.norm.key_norm transformer_blocks.#.attn.norm_added_k
double_blocks.#.img_attn.proj transformer_blocks.#.attn.to_out.0
double_blocks.#.txt_attn.proj transformer_blocks.#.attn.to_add_out
double_blocks.#.img_mlp.0 transformer_blocks.#.ff.net.0.proj
double_blocks.#.img_mlp.2 transformer_blocks.#.ff.net.2
double_blocks.#.txt_mlp.0 transformer_blocks.#.ff_context.net.0.proj
double_blocks.#.txt_mlp.2 transformer_blocks.#.ff_context.net.2
single_blocks.#.modulation.lin single_transformer_blocks.#.norm.linear
single_blocks.#.linear1 single_transformer_blocks.#.attn.to_q single_transformer_blocks.#.attn.to_k single_transformer_blocks.#.attn.to_v single_transformer_blocks.#.proj_mlp
single_blocks.#.linear2 single_transformer_blocks.#.proj_out
single_blocks.#.norm.query_norm single_transformer_blocks.#.attn.norm_q
single_blocks.#.norm.key_norm single_transformer_blocks.#.attn.norm_k
final_layer.linear proj_out
final_layer.adaLN_modulation.1 ~norm_out.linear`,
	"Flux2Transformer2DModel": `
img_in x_embedder
txt_in context_embedder
time_in.in_layer time_guidance_embed.timestep_embedder.linear_1
time_in.out_layer time_guidance_embed.timestep_embedder.linear_2
guidance_in.in_layer time_guidance_embed.guidance_embedder.linear_1
guidance_in.out_layer time_guidance_embed.guidance_embedder.linear_2
double_stream_modulation_img.lin double_stream_modulation_img.linear
double_stream_modulation_txt.lin double_stream_modulation_txt.linear
single_stream_modulation.lin single_stream_modulation.linear
double_blocks.#.img_attn.qkv transformer_blocks.#.attn.to_q transformer_blocks.#.attn.to_k transformer_blocks.#.attn.to_v
double_blocks.#.txt_attn.qkv transformer_blocks.#.attn.add_q_proj transformer_blocks.#.attn.add_k_proj transformer_blocks.#.attn.add_v_proj
double_blocks.#.img_attn.norm.query_norm transformer_blocks.#.attn.norm_q
double_blocks.#.img_attn.norm.key_norm transformer_blocks.#.attn.norm_k
double_blocks.#.txt_attn.norm.query_norm transformer_blocks.#.attn.norm_added_q
double_blocks.#.txt_attn.norm.key_norm transformer_blocks.#.attn.norm_added_k
double_blocks.#.img_attn.proj transformer_blocks.#.attn.to_out.0
double_blocks.#.txt_attn.proj transformer_blocks.#.attn.to_add_out
double_blocks.#.img_mlp.0 transformer_blocks.#.ff.linear_in
double_blocks.#.img_mlp.2 transformer_blocks.#.ff.linear_out
double_blocks.#.txt_mlp.0 transformer_blocks.#.ff_context.linear_in
double_blocks.#.txt_mlp.2 transformer_blocks.#.ff_context.linear_out
single_blocks.#.linear1 single_transformer_blocks.#.attn.to_qkv_mlp_proj
single_blocks.#.linear2 single_transformer_blocks.#.attn.to_out
single_blocks.#.norm.query_norm single_transformer_blocks.#.attn.norm_q
single_blocks.#.norm.key_norm single_transformer_blocks.#.attn.norm_k
final_layer.linear proj_out
final_layer.adaLN_modulation.1 ~norm_out.linear`,
	"ZImageTransformer2DModel": `
x_embedder all_x_embedder.2-1
final_layer.linear all_final_layer.2-1.linear
final_layer.adaLN_modulation.1 all_final_layer.2-1.adaLN_modulation.1
layers.#.attention.qkv layers.#.attention.to_q layers.#.attention.to_k layers.#.attention.to_v
layers.#.attention.out layers.#.attention.to_out.0
layers.#.attention.q_norm layers.#.attention.norm_q
layers.#.attention.k_norm layers.#.attention.norm_k
noise_refiner.#.attention.qkv noise_refiner.#.attention.to_q noise_refiner.#.attention.to_k noise_refiner.#.attention.to_v
noise_refiner.#.attention.out noise_refiner.#.attention.to_out.0
noise_refiner.#.attention.q_norm noise_refiner.#.attention.norm_q
noise_refiner.#.attention.k_norm noise_refiner.#.attention.norm_k
context_refiner.#.attention.qkv context_refiner.#.attention.to_q context_refiner.#.attention.to_k context_refiner.#.attention.to_v
context_refiner.#.attention.out context_refiner.#.attention.to_out.0
context_refiner.#.attention.q_norm context_refiner.#.attention.norm_q
context_refiner.#.attention.k_norm context_refiner.#.attention.norm_k`,
	"QwenImage21Transformer2DModel": `
transformer_blocks.#.img_mlp.gate_up transformer_blocks.#.img_mlp.gate_layer transformer_blocks.#.img_mlp.proj`,
}

var inBlock = regexp.MustCompile(`^([a-z_]+)\.(\d+)\.`)

// released gives tensors of diffusers the form of the first release.
func released(t testing.TB, class string, tensors []safetensors.Entry) []safetensors.Entry {
	table, ok := releases[class]
	require.True(t, ok, class)
	have, used := map[string]safetensors.Entry{}, map[string]bool{}
	blocks := map[string]bool{"0": true}
	for _, x := range tensors {
		have[x.Name] = x
		if m := inBlock.FindStringSubmatch(x.Name); m != nil {
			blocks[m[2]] = true
		}
	}
	var out []safetensors.Entry
	for line := range strings.Lines(table) {
		for block := range blocks {
			if block != "0" && !strings.Contains(line, "#") {
				continue
			}
			names := strings.Fields(strings.ReplaceAll(line, "#", block))
			for _, param := range []string{".weight", ".bias"} {
				var whole safetensors.Entry
				for _, name := range names[min(1, len(names)):] {
					name, swapped := strings.CutPrefix(name, "~")
					part, ok := have[name+param]
					if !ok {
						continue
					}
					used[part.Name] = true
					if swapped {
						half := len(part.Data) / 2
						part.Data = slices.Concat(part.Data[half:], part.Data[:half])
					}
					if whole.Shape == nil {
						whole = safetensors.Entry{Name: names[0] + param, DType: part.DType, Shape: slices.Clone(part.Shape), Data: bytes.Clone(part.Data)}
					} else {
						whole.Shape[0] += part.Shape[0]
						whole.Data = append(whole.Data, part.Data...)
					}
				}
				if whole.Shape == nil {
					continue
				}
				if strings.HasSuffix(names[0], ".query_norm") || strings.HasSuffix(names[0], ".key_norm") {
					whole.Name = names[0] + ".scale"
				}
				out = append(out, whole)
			}
		}
	}
	for _, x := range tensors {
		if !used[x.Name] {
			out = append(out, x)
		}
	}
	return out
}
