// Package merge writes a model with an adapter merged into its weights. The output
// is a model folder that any program can read without support for adapters.
//
// Weights are processed one at a time, so a model larger than memory can be
// merged. Embeddings that the adapter separates are untied, in the weights and in
// config.json. Other files of the model's folder (configuration, tokenizer, chat
// templates, license) are copied; the tokenizer and the chat template come from
// the adapter's folder if it has them. Everything is read back and compared with
// the computed bytes before the folder is renamed to its final name, so it is
// either complete or absent. If a model or adapter file is truncated while it is
// read, the error is safetensors.ErrFault.
package merge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// Errors that this package wraps, for errors.Is, in addition to the errors of
// [lora.NewMerger] and of the file system, and lora.ErrNotFinite for values
// that an element type cannot represent.
var (
	// ErrOptions reports an invalid element type.
	ErrOptions = errors.New("bad option")
	// ErrQuantized reports a model with weights quantized by bitsandbytes. The
	// changes of an adapter are usually smaller than their rounding errors.
	ErrQuantized = errors.New("its weights are quantised")
	// ErrNotEmpty reports an output folder that is not empty while Replace is
	// not set.
	ErrNotEmpty = errors.New("it is not empty")
	// ErrSource reports an output folder that is the folder of the model or the
	// adapter.
	ErrSource = errors.New("it is the folder that is read")
	// ErrVerify reports bytes read back that differ from the computed ones.
	ErrVerify = errors.New("not what was written")
)

// Options configure how a merged model is written. The zero value keeps the
// element types and replaces nothing.
type Options struct {
	// DType is the element type of all float weights: F32, BF16 or F16. Invalid
	// keeps the type of each. F8E4M3 keeps it too, and is for models that are stored in
	// 8-bit floats; their weights are rounded with scales of the same blocks. Models that GPTQ or
	// AWQ has stored become BF16 if it is Invalid.
	DType tensor.DType
	// MaxShardSize is the maximum number of bytes of weights per file; a larger
	// tensor gets its own file. Zero means safetensors.DefaultShardSize.
	MaxShardSize int64
	// Replace replaces a folder that is not empty, with everything in it.
	Replace bool
	// Progress, if not nil, is called after each tensor with the number of
	// tensors done: first for the task "merging", then for "verifying".
	Progress func(task string, done, total int)
}

// Result describes the output of a merge.
type Result struct {
	Tensors int      // number of written tensors
	Merged  int      // number of tensors changed by the adapter
	Untied  []string // weights that are no longer tied to others
	Bytes   int64    // total size of all tensors
	Files   []string // weights files, by name
	// Rounding is the error of rounding merged weights to 8-bit floats, relative to the
	// weights. RoundedChange is the same error relative to the adapter's change. Both
	// compare root mean squares, and are 0 if no weight is rounded.
	Rounding, RoundedChange float64
}

// Write merges a into m and writes the result to the folder dir, whose parent must
// exist. p is the plan of a for m; a must have passed [lora.Adapter.Check] with it.
// The same arguments always give the same bytes.
//
// The folder replaces the old one, or gets its name, after everything has been
// written, read back and verified. After an error, including that of ctx, dir is
// unchanged. Errors about dir itself are of type [OutputError]; the others wrap the
// errors of this package.
func Write(ctx context.Context, dir string, m *model.Model, a *lora.Adapter, p *lora.Placement, o Options) (*Result, error) {
	q := m.Quantization()
	if o.DType == tensor.F8E4M3 {
		if !q.Float8 {
			return nil, fmt.Errorf("merge: %s: element type %v: found a model that is not stored in 8-bit floats, expected F32, BF16 or F16: %w", m.Dir, o.DType, ErrOptions)
		}
		o.DType = tensor.Invalid
	}
	if weights.ConfigName(o.DType) == "" && o.DType != tensor.Invalid {
		return nil, fmt.Errorf("merge: element type %v, expected F32, BF16 or F16: %w", o.DType, ErrOptions)
	}
	if q.Tool != "" && o.DType == tensor.Invalid {
		o.DType = tensor.BF16
	}
	if q.Stored && !q.Float8 && q.Tool == "" {
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
	r := w.result // a copy, which does not retain the writer's memory
	r.Tensors = len(w.weights)
	r.Rounding, r.RoundedChange = w.rounding.parts()
	return &r, nil
}
