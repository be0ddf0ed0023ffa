// Package dialects reads and writes the single-file LoRA adapters of tools for diffusion
// transformers:
//
//   - diffusers: pytorch_lora_weights.safetensors, keys transformer.MODULE.lora_A.weight
//     (before diffusers 0.33, and for some models still, .lora.down.weight), with PEFT's
//     configuration in the metadata. Without it a scale other than one is silently lost.
//   - kohya, musubi-tuner: lora_unet_MODULE.lora_down.weight with _ for the dots of the name,
//     and MODULE.alpha. FLUX transformers use the names of their first release, in which
//     one layer is several of diffusers': q, k and v, and in single blocks the MLP too.
//   - ComfyUI, ai-toolkit: diffusion_model.MODULE.lora_A.weight or .lora_down.weight, and
//     MODULE.alpha.
//   - LyCORIS: LoHa (hada_w1_a, …) and LoKr (lokr_w1, …) of linear layers, with names of any of
//     these forms, and MODULE.alpha. They are written with lycoris_ and _ for the dots.
//
// [OpenText] opens adapters of language models, in the forms of llama.cpp, MLX, torchtune and
// plain layers lora_a and lora_b too.
//
// [Read] returns a [lora.Adapter] with PEFT's keys and the strength that the file
// specifies: the numbers are unchanged, and alpha becomes part of the configuration.
// Every tensor of a file must belong to a layer of the model.
package dialects

import "errors"

// ErrElsewhere: the tensor adapts a pipeline component other than the transformer.
var ErrElsewhere = errors.New("not of the transformer")

// Form is the naming scheme of the tensors in a file.
type Form string

// The forms that [Write] supports.
const (
	Diffusers Form = "diffusers"
	Kohya     Form = "kohya"
	ComfyUI   Form = "comfyui"
	Lycoris   Form = "lycoris" // LoHa and LoKr only
)

// File is the file name that diffusers uses for an adapter in a folder.
const File = "pytorch_lora_weights.safetensors"
