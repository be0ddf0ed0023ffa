// Package llamacpp translates models between Hugging Face and llama.cpp: names of
// tensors, metadata of GGUF files, tokenizers and chat templates. One table
// (table.go) has a row per architecture of llama.cpp. [Describe] returns what a GGUF
// file of a model needs, and [Folder] makes a model folder for a GGUF file.
//
// The metadata is that which src/models of github.com/ggml-org/llama.cpp reads. A
// setting that llama.cpp does not compute is rejected by name.
package llamacpp

import "errors"

// ErrUnsupported reports a model, a setting or a tensor that has no counterpart.
var ErrUnsupported = errors.New("not supported in GGUF")
