// Package gguf reads and writes GGUF files, version 3: the format of models and
// adapters of llama.cpp. A file has metadata under keys, followed by named
// tensors whose elements are floats or blocks of codes with shared scales.
//
// [Open] maps a file and checks its header; [File.Float32s] converts elements of a
// tensor to float32 with the same rounding as ggml. [Write] writes a file, and
// [Quantize] converts float32 elements to blocks as ggml's reference functions do.
// The format is described in docs/gguf.md of github.com/ggml-org/ggml.
package gguf

import "errors"

// Errors that this package wraps.
var (
	// ErrFormat reports a file that is not a valid GGUF file.
	ErrFormat = errors.New("bad GGUF file")
	// ErrTruncated reports a file that ends before its tensors do.
	ErrTruncated = errors.New("the GGUF file is truncated")
	// ErrUnsupported reports a version, byte order or block type that is not
	// supported.
	ErrUnsupported = errors.New("unsupported GGUF file")
	// ErrMissing reports a key or a tensor that the file does not have.
	ErrMissing = errors.New("missing in the GGUF file")
	// ErrValue reports a metadata value of another type than expected.
	ErrValue = errors.New("bad GGUF metadata")
)

// magic is the first four bytes of a file, version the supported version.
const (
	magic   = "GGUF"
	version = 3
)

// alignmentKey is the key of the alignment of tensors; defaultAlignment applies
// without it.
const (
	alignmentKey     = "general.alignment"
	defaultAlignment = 32
)
