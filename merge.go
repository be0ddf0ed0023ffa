package lorafuse

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/merge"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/pretrained"
	"github.com/lorafuse/lorafuse/tensor"
)

// MergeOptions configure [Merge].
type MergeOptions struct {
	// DType is the element type of all weights: F32, BF16 or F16. Zero keeps the type of each.
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

// MergedModel describes a merged model. Its files have been read back and verified.
type MergedModel struct {
	Tensors int      `json:"tensors"`
	Merged  int      `json:"merged"` // number of tensors that the adapter changed
	Untied  []string `json:"untied"` // weights that are no longer tied
	Bytes   int64    `json:"bytes"`
	Files   []string `json:"files"`
}

// Merge merges an adapter into the weights of a model and writes the result to the folder output,
// which must be empty or absent. Parameter name is a folder or a Hub name. Programs read the result like any
// model. The write is atomic.
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
	a, p, err := pretrained.OpenAdapter(adapter, m, options)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	return merge.Write(ctx, output, m, a, p, merge.Options{DType: o.DType, MaxShardSize: o.MaxShardSize, Replace: o.Replace, Progress: o.Progress})
}
