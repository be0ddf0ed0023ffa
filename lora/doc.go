// Package lora reads, checks, trains and writes PEFT's LoRA adapters: it parses their
// configuration, selects the modules of a model that they target, initializes their
// weights, and merges them into the weights of the model. It works only on names,
// shapes and host memory.
//
// It is compatible with PEFT 0.21.2 in both directions: adapters written by PEFT have
// the same meaning here, and PEFT loads adapters written here. If PEFT silently ignores
// a mistake (an unmatched tensor, an adapter without effect, a rank that does not fit
// the scale), this package returns an error that names it.
//
// A program opens an adapter with
//
//	cfg, err := lora.ReadConfig(dir)             // adapter_config.json
//	placed, err := lora.NewPlacement(cfg, model) // what it targets in this model
//	adapter, err := lora.Load(dir)               // adapter_model.safetensors, or .bin
//	err = adapter.Check(placed, lora.CheckOptions{}).Err()
//
// and then uses a [Merger], or the layers that compute with the adapter.
//
// A [Registry] keeps the adapters of one model for a server: by name, in versions that
// are identified by their bytes, within a memory limit.
//
// A [Layer] is LoRA without a model: an operation in any formula of package graph, which
// can be trained with [graph.AdamW].
package lora
