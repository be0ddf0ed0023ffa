// Package merge writes a model with an adapter merged into its weights: a
// folder like that of the model, which every program reads without knowing of
// adapters.
//
// Weights pass through one at a time, so a model larger than the memory can be
// merged. Embeddings that the adapter separates are untied, in the weights and
// in config.json. What stands beside the weights (configuration, tokenizer,
// chat templates, licence) is copied, the tokenizer and the chat template from the
// adapter's folder if it has some. Everything is read back and compared
// with what was computed before the folder takes its name: it is there whole
// or not at all. A model or an adapter that is cut short while it is read is
// safetensors.ErrFault.
package merge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/weights"
)

// Errors that this package wraps, for errors.Is. Beside them there are those
// of [lora.NewMerger], lora.ErrNotFinite for what an element type cannot hold,
// and those of the file system.
var (
	// ErrOptions: an element type that weights cannot have.
	ErrOptions = errors.New("bad option")
	// ErrQuantized: the weights of the model are stored quantised. What an
	// adapter adds is mostly less than what they were rounded by.
	ErrQuantized = errors.New("its weights are quantised")
	// ErrNotEmpty: the folder to write holds something, and Replace is not set.
	ErrNotEmpty = errors.New("it is not empty")
	// ErrSource: the folder to write is the model's or the adapter's.
	ErrSource = errors.New("it is the folder that is read")
	// ErrVerify: what was read back is not what was computed.
	ErrVerify = errors.New("not what was written")
)

// Options say how a merged model is written. The zero value keeps the element
// types and replaces nothing.
type Options struct {
	// DType is the element type of all weights that are floats: F32, BF16 or
	// F16. Invalid keeps that of each.
	DType tensor.DType
	// MaxShardSize is the most bytes of weights in one file, as long as a
	// single tensor is not larger; 0 is safetensors.DefaultShardSize.
	MaxShardSize int64
	// Replace replaces a folder that is not empty, with all that is in it.
	Replace bool
	// Progress, where it is set, is told after each tensor how many of them
	// are done: first of the task "merging", then of "verifying".
	Progress func(task string, done, total int)
}

// Result is what a merge wrote.
type Result struct {
	Tensors int      // in the files
	Merged  int      // of them, those that the adapter changed
	Untied  []string // weights that no longer share those of another
	Bytes   int64    // of all tensors
	Files   []string // with weights, by their names in the folder
}

// Write merges a into m and writes the result to the folder dir, whose parent
// must exist. p is the plan of a for m, and a must have passed [lora.Adapter.Check]
// with it. The same arguments give the same bytes.
//
// The folder takes its name, or the place of the old one, when all of it has
// been written, read back and found to be what was computed. After an error,
// also that of ctx, dir is as it was. Errors about dir itself are of the type
// [OutputError]; the others are those of this package's variables.
func Write(ctx context.Context, dir string, m *model.Model, a *lora.Adapter, p *lora.Placement, o Options) (*Result, error) {
	if weights.ConfigName(o.DType) == "" && o.DType != tensor.Invalid {
		return nil, fmt.Errorf("merge: element type %v, expected F32, BF16 or F16: %w", o.DType, ErrOptions)
	}
	if m.Quantization().Stored {
		return nil, fmt.Errorf("merge: %s: %w: expected the unquantised model that it was made from, which the adapter goes with just as well", m.Dir, ErrQuantized)
	}
	if err := checkOutput(dir, o.Replace, m.Dir, a.Dir); err != nil {
		return nil, err
	}
	merger, err := lora.NewMerger(a, p)
	if err != nil {
		return nil, fmt.Errorf("merge: %s: %w", strings.TrimSpace("adapter "+a.Dir), err)
	}
	w := &writer{model: m, adapter: a.Dir, merger: merger, options: o}
	if err := fsatomic.ReplaceDir(dir, func(temp string) error { return w.write(ctx, temp) }); err != nil {
		return nil, fmt.Errorf("merge: %s: %w", dir, err)
	}
	r := w.result // alone, without the memory of what was merged
	r.Tensors = len(w.weights)
	return &r, nil
}
