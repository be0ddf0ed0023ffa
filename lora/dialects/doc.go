// Package dialects reads and writes the single files in which tools for diffusion
// transformers keep LoRA adapters:
//
//   - diffusers: pytorch_lora_weights.safetensors, keys transformer.MODULE.lora_A.weight
//     (before 0.33 of diffusers, and for some models still, .lora.down.weight), with PEFT's
//     configuration in the metadata. Without it a scale other than one is lost, in silence.
//   - kohya, musubi-tuner: lora_unet_MODULE.lora_down.weight with _ for the dots of the name,
//     and MODULE.alpha. Transformers of FLUX have the names of their first release, where
//     one layer is several of diffusers': q, k and v, and in single blocks the MLP too.
//   - ComfyUI, ai-toolkit: diffusion_model.MODULE.lora_A.weight or .lora_down.weight, and
//     MODULE.alpha.
//
// What is read becomes a [lora.Adapter] with PEFT's keys and a configuration under which it
// is as strong as the file says: numbers stay as they are, and alpha goes into the
// configuration. Every tensor of a file must belong to a layer of the model.
package dialects

import "errors"

// ErrElsewhere: a tensor that adapts another part of the pipeline than the transformer.
var ErrElsewhere = errors.New("not of the transformer")

// Form is how a file names its tensors.
type Form string

// The forms that are written.
const (
	Diffusers Form = "diffusers"
	Kohya     Form = "kohya"
	ComfyUI   Form = "comfyui"
)

// File is the name that diffusers gives to an adapter's file and looks for in a folder.
const File = "pytorch_lora_weights.safetensors"
