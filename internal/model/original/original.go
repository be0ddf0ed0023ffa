// Package original knows how layers of diffusion transformers were called when these were
// first released, and which modules of diffusers they are: single files of weights and
// adapters of other tools have these names.
package original

import (
	"slices"
	"strings"
)

// Layer is a layer of a first release. In its names # is the number of a block.
type Layer struct {
	Name    string
	In      string   // the beginning of the names of its modules
	Modules []string // name suffixes; the outputs of the modules are concatenated
	Shares  []int    // of the modules in the outputs; nil: equal ones
	Swapped bool     // shift, scale in the release; scale, shift in diffusers
}

// Release describes the module names of a model as first released. Source:
// diffusers/loaders/lora_conversion_utils.py and single_file_utils.py, 0.42.1.
type Release struct {
	Class  string // of diffusers
	Marker string // a module that no other model of diffusers has
	// Written reports that kohya and ComfyUI write the names of the release. Otherwise they
	// also accept the names of diffusers.
	Written bool
	// Folded reports that diffusers reads only A and B of ComfyUI's adapters, so alpha must be
	// folded into B.
	Folded bool
	Whole  bool // no name is one of diffusers
	// Lost reports whether diffusers drops or changes the adapter of a layer outside blocks
	// when it loads a file in the form of kohya or of ComfyUI. Nil means no layer.
	Lost   func(layer string, kohya bool) bool
	Layers []Layer
	Unused []string // tensors that nothing reads
}

// Releases returns the releases whose names differ from diffusers.
func Releases() []Release { return releases }

// Of returns the release of a diffusers class.
func Of(class string) (Release, bool) {
	for _, r := range releases {
		if r.Class == class {
			return r, true
		}
	}
	return Release{}, false
}

const (
	double = "transformer_blocks.#."
	single = "single_transformer_blocks.#."
)

var releases = []Release{{
	Class: "FluxTransformer2DModel", Marker: single + "proj_mlp", Written: true, Whole: true,
	Lost: func(string, bool) bool { return true }, // diffusers loads only the blocks
	Layers: append([]Layer{
		{Name: "double_blocks.#.img_mlp.0", In: double, Modules: []string{"ff.net.0.proj"}},
		{Name: "double_blocks.#.img_mlp.2", In: double, Modules: []string{"ff.net.2"}},
		{Name: "double_blocks.#.txt_mlp.0", In: double, Modules: []string{"ff_context.net.0.proj"}},
		{Name: "double_blocks.#.txt_mlp.2", In: double, Modules: []string{"ff_context.net.2"}},
		{Name: "double_blocks.#.img_mod.lin", In: double, Modules: []string{"norm1.linear"}},
		{Name: "double_blocks.#.txt_mod.lin", In: double, Modules: []string{"norm1_context.linear"}},
		{Name: "single_blocks.#.linear1", In: single, Modules: []string{"attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"}, Shares: []int{1, 1, 1, 4}},
		{Name: "single_blocks.#.linear2", In: single, Modules: []string{"proj_out"}},
		{Name: "single_blocks.#.modulation.lin", In: single, Modules: []string{"norm.linear"}},
		{Name: "time_in.in_layer", In: "time_text_embed.", Modules: []string{"timestep_embedder.linear_1"}},
		{Name: "time_in.out_layer", In: "time_text_embed.", Modules: []string{"timestep_embedder.linear_2"}},
		{Name: "vector_in.in_layer", In: "time_text_embed.", Modules: []string{"text_embedder.linear_1"}},
		{Name: "vector_in.out_layer", In: "time_text_embed.", Modules: []string{"text_embedder.linear_2"}},
		{Name: "guidance_in.in_layer", In: "time_text_embed.", Modules: []string{"guidance_embedder.linear_1"}},
		{Name: "guidance_in.out_layer", In: "time_text_embed.", Modules: []string{"guidance_embedder.linear_2"}},
	}, flux...),
}, {
	Class: "Flux2Transformer2DModel", Marker: "double_stream_modulation_img.linear", Written: true, Folded: true, Whole: true,
	// diffusers has no names in kohya's form for modulations and guidance, and in ComfyUI's
	// form it leaves the halves of the last modulation swapped.
	Lost: func(layer string, kohya bool) bool {
		if kohya {
			return !slices.Contains([]string{"img_in", "txt_in", "time_in.in_layer", "time_in.out_layer", "final_layer.linear"}, layer)
		}
		return layer == "final_layer.adaLN_modulation.1"
	},
	Layers: append([]Layer{
		{Name: "double_blocks.#.img_mlp.0", In: double, Modules: []string{"ff.linear_in"}},
		{Name: "double_blocks.#.img_mlp.2", In: double, Modules: []string{"ff.linear_out"}},
		{Name: "double_blocks.#.txt_mlp.0", In: double, Modules: []string{"ff_context.linear_in"}},
		{Name: "double_blocks.#.txt_mlp.2", In: double, Modules: []string{"ff_context.linear_out"}},
		{Name: "single_blocks.#.linear1", In: single, Modules: []string{"attn.to_qkv_mlp_proj"}},
		{Name: "single_blocks.#.linear2", In: single, Modules: []string{"attn.to_out"}},
		{Name: "double_stream_modulation_img.lin", Modules: []string{"double_stream_modulation_img.linear"}},
		{Name: "double_stream_modulation_txt.lin", Modules: []string{"double_stream_modulation_txt.linear"}},
		{Name: "single_stream_modulation.lin", Modules: []string{"single_stream_modulation.linear"}},
		{Name: "time_in.in_layer", In: "time_guidance_embed.", Modules: []string{"timestep_embedder.linear_1"}},
		{Name: "time_in.out_layer", In: "time_guidance_embed.", Modules: []string{"timestep_embedder.linear_2"}},
		{Name: "guidance_in.in_layer", In: "time_guidance_embed.", Modules: []string{"guidance_embedder.linear_1"}},
		{Name: "guidance_in.out_layer", In: "time_guidance_embed.", Modules: []string{"guidance_embedder.linear_2"}},
	}, flux...),
}, {
	Class: "ZImageTransformer2DModel", Marker: "all_x_embedder.2-1", Unused: []string{"norm_final.weight"},
	Layers: []Layer{
		{Name: "layers.#.attention.qkv", In: "layers.#.attention.", Modules: []string{"to_q", "to_k", "to_v"}},
		{Name: "layers.#.attention.out", In: "layers.#.attention.", Modules: []string{"to_out.0"}},
		{Name: "layers.#.attention.q_norm", In: "layers.#.attention.", Modules: []string{"norm_q"}},
		{Name: "layers.#.attention.k_norm", In: "layers.#.attention.", Modules: []string{"norm_k"}},
		{Name: "noise_refiner.#.attention.qkv", In: "noise_refiner.#.attention.", Modules: []string{"to_q", "to_k", "to_v"}},
		{Name: "noise_refiner.#.attention.out", In: "noise_refiner.#.attention.", Modules: []string{"to_out.0"}},
		{Name: "noise_refiner.#.attention.q_norm", In: "noise_refiner.#.attention.", Modules: []string{"norm_q"}},
		{Name: "noise_refiner.#.attention.k_norm", In: "noise_refiner.#.attention.", Modules: []string{"norm_k"}},
		{Name: "context_refiner.#.attention.qkv", In: "context_refiner.#.attention.", Modules: []string{"to_q", "to_k", "to_v"}},
		{Name: "context_refiner.#.attention.out", In: "context_refiner.#.attention.", Modules: []string{"to_out.0"}},
		{Name: "context_refiner.#.attention.q_norm", In: "context_refiner.#.attention.", Modules: []string{"norm_q"}},
		{Name: "context_refiner.#.attention.k_norm", In: "context_refiner.#.attention.", Modules: []string{"norm_k"}},
		{Name: "x_embedder", Modules: []string{"all_x_embedder.2-1"}},
		{Name: "final_layer.linear", In: "all_final_layer.2-1.", Modules: []string{"linear"}},
		{Name: "final_layer.adaLN_modulation.1", In: "all_final_layer.2-1.", Modules: []string{"adaLN_modulation.1"}},
	},
}, {
	Class: "QwenImage21Transformer2DModel", Marker: double + "img_mlp.gate_layer",
	Layers: []Layer{
		{Name: "transformer_blocks.#.img_mlp.gate_up", In: double, Modules: []string{"img_mlp.gate_layer", "img_mlp.proj"}},
	},
}}

// flux are layers that FLUX.1 and FLUX.2 have in common.
var flux = []Layer{
	{Name: "double_blocks.#.img_attn.qkv", In: double, Modules: []string{"attn.to_q", "attn.to_k", "attn.to_v"}},
	{Name: "double_blocks.#.txt_attn.qkv", In: double, Modules: []string{"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"}},
	{Name: "double_blocks.#.img_attn.proj", In: double, Modules: []string{"attn.to_out.0"}},
	{Name: "double_blocks.#.txt_attn.proj", In: double, Modules: []string{"attn.to_add_out"}},
	{Name: "double_blocks.#.img_attn.norm.query_norm", In: double, Modules: []string{"attn.norm_q"}},
	{Name: "double_blocks.#.img_attn.norm.key_norm", In: double, Modules: []string{"attn.norm_k"}},
	{Name: "double_blocks.#.txt_attn.norm.query_norm", In: double, Modules: []string{"attn.norm_added_q"}},
	{Name: "double_blocks.#.txt_attn.norm.key_norm", In: double, Modules: []string{"attn.norm_added_k"}},
	{Name: "single_blocks.#.norm.query_norm", In: single, Modules: []string{"attn.norm_q"}},
	{Name: "single_blocks.#.norm.key_norm", In: single, Modules: []string{"attn.norm_k"}},
	{Name: "img_in", Modules: []string{"x_embedder"}},
	{Name: "txt_in", Modules: []string{"context_embedder"}},
	{Name: "final_layer.linear", Modules: []string{"proj_out"}},
	{Name: "final_layer.adaLN_modulation.1", Modules: []string{"norm_out.linear"}, Swapped: true},
}

// Module returns the name of module i of a layer in a block.
func (l Layer) Module(i int, block string) string {
	return strings.ReplaceAll(l.In+l.Modules[i], "#", block)
}

// Numbered returns the name of a layer in a block.
func (l Layer) Numbered(block string) string { return strings.ReplaceAll(l.Name, "#", block) }

// Number returns the digits in name at the # of pattern; the rest must be equal. A pattern
// without # must equal name.
func Number(name, pattern string) (block string, ok bool) {
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
