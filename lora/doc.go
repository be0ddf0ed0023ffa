// Package lora knows PEFT's LoRA adapters: their configuration, which modules
// of a model they target, their files, how they begin, and how they are merged
// into the weights of a model. It works on names, shapes and host memory alone.
//
// The contract is that of PEFT 0.21.2: what PEFT writes is read with the same
// meaning, and what is written here PEFT loads. Where PEFT passes over a
// mistake in silence (an unmatched tensor, an adapter that does nothing, a rank
// that does not fit the scale), this package returns an error that names it.
//
// The path of an adapter is
//
//	cfg, err := lora.ReadConfig(dir)             // adapter_config.json
//	placed, err := lora.NewPlacement(cfg, model) // what it targets in this model
//	adapter, err := lora.Load(dir)               // adapter_model.safetensors, or .bin
//	err = adapter.Check(placed, lora.CheckOptions{}).Err()
//
// followed by a [Merger], or by the layers that compute with the adapter.
//
// A [Registry] keeps the adapters that a server has of one model: by name, as
// versions that their bytes identify, in as much memory as it may.
//
// A [Layer] is LoRA without a model around it: a part of any formula of package
// graph, trained alone by [graph.AdamW].
package lora
