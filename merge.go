package lorafuse

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/merge"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/pretrained"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// MergeOptions configure [Merge].
type MergeOptions struct {
	// GGUF writes a GGUF file for llama.cpp in place of a folder. DType is then ignored.
	GGUF *GGUFOptions
	// DType is the element type of all weights: F32, BF16 or F16. Zero keeps the type of each. F8E4M3
	// does so for models that are stored in 8-bit floats.
	DType tensor.DType
	// MaxShardSize is the size of the largest file in bytes. Zero means 10 GiB.
	MaxShardSize int64
	// Replace replaces an output folder that is not empty, with everything in it.
	Replace bool
	// Progress, if not nil, is told how far a task is, in tensors.
	Progress func(task string, done, total int)
	// Download, if not nil, is told how far downloads are, in bytes.
	Download func(file string, done, total int64)
	// Note, if not nil, receives notes, such as tensors that the model does not read.
	Note func(text string)
}

// GGUFOptions configure [Merge] to GGUF.
type GGUFOptions struct {
	// Type is the element type of matrices: f32, f16, bf16, q8_0, q4_0, q4_k or q6_k. Empty keeps
	// the type of each.
	Type string
	// Modelfile also writes a Modelfile for Ollama next to the file.
	Modelfile bool
}

// MergedModel describes a merged model. Its files have been read back and verified.
type MergedModel struct {
	Tensors int      `json:"tensors"`
	Merged  int      `json:"merged"` // number of tensors that the adapter changed
	Untied  []string `json:"untied"` // weights that are no longer tied
	Bytes   int64    `json:"bytes"`
	Files   []string `json:"files"`
	// Rounding is the error of rounding merged weights to 8-bit floats, relative to the weights.
	// RoundedChange is the same error relative to the adapter's change. Both compare root mean squares,
	// and are 0 if no weight is rounded.
	Rounding      float64 `json:"rounding,omitempty"`
	RoundedChange float64 `json:"rounded_change,omitempty"`
}

// Merge merges an adapter into the weights of a model and writes the result to output. That is a folder, empty or
// absent, or a GGUF file. Parameter name is a folder or a Hub name. Programs read the result like any model. The write
// is atomic. To GGUF, adapter may be empty: the model itself is then written.
func Merge(ctx context.Context, name, adapter, output string, o MergeOptions) (*MergedModel, error) {
	r, err := o.merge(ctx, name, adapter, output)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: merge: %w", err)
	}
	return (*MergedModel)(r), nil
}

func (o *MergeOptions) merge(ctx context.Context, name, adapter, output string) (*merge.Result, error) {
	found := hub.Options{Progress: o.Download}
	if o.Note != nil {
		found.Warn = func(err error) { o.Note(err.Error()) }
	}
	dir, err := hub.Resolve(ctx, name, found)
	if err != nil {
		return nil, err
	}
	options := pretrained.Options{Adapter: adapter, Note: o.Note}
	m, err := pretrained.OpenModel(dir, options)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if o.GGUF != nil && adapter == "" {
		return o.gguf(ctx, output, name, m, nil, nil)
	}
	a, p, err := pretrained.OpenAdapter(adapter, m, options)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	if o.GGUF != nil {
		return o.gguf(ctx, output, name, m, a, p)
	}
	return merge.Write(ctx, output, m, a, p, merge.Options{DType: o.DType, MaxShardSize: o.MaxShardSize, Replace: o.Replace, Progress: o.Progress})
}

// gguf writes a GGUF file, and a Modelfile if that is wanted. a may be nil.
func (o *MergeOptions) gguf(ctx context.Context, output, name string, m *model.Model, a *lora.Adapter, p *lora.Placement) (*merge.Result, error) {
	r, err := merge.WriteGGUF(ctx, output, m, a, p, merge.GGUFOptions{
		Type: o.GGUF.Type, Replace: o.Replace, Name: filepath.Base(filepath.Clean(name)), Progress: o.Progress, Note: o.Note,
	})
	if err == nil && o.GGUF.Modelfile {
		err = merge.WriteModelfile(output, "")
	}
	return r, err
}
