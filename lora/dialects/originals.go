package dialects

import (
	"strings"

	"github.com/lorafuse/lorafuse/lora"
)

// original says how a layer was called when its model was first released, and which
// modules of diffusers it is. In both, # is the number of a block.
type original struct {
	name    string
	in      string   // the beginning of all modules
	modules []string // their ends
	swapped bool     // shift, scale in the original; scale, shift in diffusers
}

// release is a model as it was first released. Source of the names:
// diffusers/loaders/lora_conversion_utils.py and single_file_utils.py, 0.42.1.
type release struct {
	marker string // a module that no other model of diffusers has
	// written says that kohya and ComfyUI know the model by these names; else they know
	// those of diffusers as well.
	written bool
	layers  []original
}

const (
	double = "transformer_blocks.#."
	single = "single_transformer_blocks.#."
)

// releases are those whose names are not the ones of diffusers.
var releases = []release{{
	marker: single + "proj_mlp", written: true, // FLUX.1
	layers: append([]original{
		{name: "double_blocks.#.img_mlp.0", in: double, modules: []string{"ff.net.0.proj"}},
		{name: "double_blocks.#.img_mlp.2", in: double, modules: []string{"ff.net.2"}},
		{name: "double_blocks.#.txt_mlp.0", in: double, modules: []string{"ff_context.net.0.proj"}},
		{name: "double_blocks.#.txt_mlp.2", in: double, modules: []string{"ff_context.net.2"}},
		{name: "double_blocks.#.img_mod.lin", in: double, modules: []string{"norm1.linear"}},
		{name: "double_blocks.#.txt_mod.lin", in: double, modules: []string{"norm1_context.linear"}},
		{name: "single_blocks.#.linear1", in: single, modules: []string{"attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"}},
		{name: "single_blocks.#.linear2", in: single, modules: []string{"proj_out"}},
		{name: "single_blocks.#.modulation.lin", in: single, modules: []string{"norm.linear"}},
		{name: "time_in.in_layer", in: "time_text_embed.", modules: []string{"timestep_embedder.linear_1"}},
		{name: "time_in.out_layer", in: "time_text_embed.", modules: []string{"timestep_embedder.linear_2"}},
		{name: "vector_in.in_layer", in: "time_text_embed.", modules: []string{"text_embedder.linear_1"}},
		{name: "vector_in.out_layer", in: "time_text_embed.", modules: []string{"text_embedder.linear_2"}},
		{name: "guidance_in.in_layer", in: "time_text_embed.", modules: []string{"guidance_embedder.linear_1"}},
		{name: "guidance_in.out_layer", in: "time_text_embed.", modules: []string{"guidance_embedder.linear_2"}},
	}, flux...),
}, {
	marker: "double_stream_modulation_img.linear", written: true, // FLUX.2
	layers: append([]original{
		{name: "double_blocks.#.img_mlp.0", in: double, modules: []string{"ff.linear_in"}},
		{name: "double_blocks.#.img_mlp.2", in: double, modules: []string{"ff.linear_out"}},
		{name: "double_blocks.#.txt_mlp.0", in: double, modules: []string{"ff_context.linear_in"}},
		{name: "double_blocks.#.txt_mlp.2", in: double, modules: []string{"ff_context.linear_out"}},
		{name: "single_blocks.#.linear1", in: single, modules: []string{"attn.to_qkv_mlp_proj"}},
		{name: "single_blocks.#.linear2", in: single, modules: []string{"attn.to_out"}},
		{name: "double_stream_modulation_img.lin", modules: []string{"double_stream_modulation_img.linear"}},
		{name: "double_stream_modulation_txt.lin", modules: []string{"double_stream_modulation_txt.linear"}},
		{name: "single_stream_modulation.lin", modules: []string{"single_stream_modulation.linear"}},
		{name: "time_in.in_layer", in: "time_guidance_embed.", modules: []string{"timestep_embedder.linear_1"}},
		{name: "time_in.out_layer", in: "time_guidance_embed.", modules: []string{"timestep_embedder.linear_2"}},
		{name: "guidance_in.in_layer", in: "time_guidance_embed.", modules: []string{"guidance_embedder.linear_1"}},
		{name: "guidance_in.out_layer", in: "time_guidance_embed.", modules: []string{"guidance_embedder.linear_2"}},
	}, flux...),
}, {
	marker: "all_x_embedder.2-1", // Z-Image
	layers: []original{
		{name: "layers.#.attention.qkv", in: "layers.#.attention.", modules: []string{"to_q", "to_k", "to_v"}},
		{name: "layers.#.attention.out", in: "layers.#.attention.", modules: []string{"to_out.0"}},
		{name: "noise_refiner.#.attention.qkv", in: "noise_refiner.#.attention.", modules: []string{"to_q", "to_k", "to_v"}},
		{name: "noise_refiner.#.attention.out", in: "noise_refiner.#.attention.", modules: []string{"to_out.0"}},
		{name: "context_refiner.#.attention.qkv", in: "context_refiner.#.attention.", modules: []string{"to_q", "to_k", "to_v"}},
		{name: "context_refiner.#.attention.out", in: "context_refiner.#.attention.", modules: []string{"to_out.0"}},
		{name: "x_embedder", modules: []string{"all_x_embedder.2-1"}},
		{name: "final_layer.linear", in: "all_final_layer.2-1.", modules: []string{"linear"}},
		{name: "final_layer.adaLN_modulation.1", in: "all_final_layer.2-1.", modules: []string{"adaLN_modulation.1"}},
	},
}}

// flux are layers that FLUX.1 and FLUX.2 have in common.
var flux = []original{
	{name: "double_blocks.#.img_attn.qkv", in: double, modules: []string{"attn.to_q", "attn.to_k", "attn.to_v"}},
	{name: "double_blocks.#.txt_attn.qkv", in: double, modules: []string{"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"}},
	{name: "double_blocks.#.img_attn.proj", in: double, modules: []string{"attn.to_out.0"}},
	{name: "double_blocks.#.txt_attn.proj", in: double, modules: []string{"attn.to_add_out"}},
	{name: "img_in", modules: []string{"x_embedder"}},
	{name: "txt_in", modules: []string{"context_embedder"}},
	{name: "final_layer.linear", modules: []string{"proj_out"}},
	{name: "final_layer.adaLN_modulation.1", modules: []string{"norm_out.linear"}, swapped: true},
}

// of reports whether the modules are those of this model.
func (r release) of(model lora.Model) bool {
	for _, m := range model.Modules {
		if _, ok := number(m.Name, r.marker); ok {
			return true
		}
	}
	return false
}

// layers lists the original layers whose modules the model has, by their names, in the
// order of the modules.
func (o original) layers(model lora.Model, linear map[string]lora.Module) (found []layer) {
	for _, m := range model.Modules {
		n, ok := number(m.Name, o.in+o.modules[0])
		if !ok {
			continue
		}
		l := layer{name: strings.ReplaceAll(o.name, "#", n), swapped: o.swapped}
		for _, end := range o.modules {
			if part, ok := linear[strings.ReplaceAll(o.in+end, "#", n)]; ok {
				l.modules = append(l.modules, part)
			}
		}
		if len(l.modules) == len(o.modules) {
			found = append(found, l)
		}
	}
	return found
}

// number is what stands in name for the # of pattern, if that is digits and the rest is
// equal; a pattern without # must be name.
func number(name, pattern string) (string, bool) {
	before, after, any := strings.Cut(pattern, "#")
	if !any {
		return "", name == pattern
	}
	rest, ok := strings.CutPrefix(name, before)
	if !ok {
		return "", false
	}
	n, ok := strings.CutSuffix(rest, after)
	return n, ok && n != "" && strings.Trim(n, "0123456789") == ""
}
