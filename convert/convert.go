// Package convert writes the tensors of any set of weights as safetensors: of a
// file that torch.save has written, of one file as shards or the other way
// round, in another element type.
//
// Tensors pass through in chunks, so that a model larger than the memory can be
// converted. What was written is read back before it takes its name: the result
// is there whole or not at all.
package convert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/weights"
)

// Errors that this package wraps, beside those of weights, safetensors and the
// file system.
var (
	// ErrOptions: an element type that weights cannot have, a name of files
	// that is none.
	ErrOptions = errors.New("bad option")
	// ErrExists: what should be written is there, and Replace is not set.
	ErrExists = errors.New("it exists")
	// ErrSource: what should be written is what is read, or holds it.
	ErrSource = errors.New("it is what is read")
	// ErrVerify: what was read back is not what was computed, or what was
	// computed is not the nearest number of the type.
	ErrVerify = errors.New("not what was written")
)

// Options say how weights are written. The zero value keeps the element types
// and replaces nothing.
type Options struct {
	// DType is the element type of all tensors of floats: F64, F32, BF16, F16 or
	// a type of 8 bits with a sign and a mantissa. Invalid keeps that of each.
	// Whole numbers, truth values, complex numbers, scales (F8_E8M0) and
	// types of less than a byte stay as they are.
	DType tensor.DType
	// Keep, where it is set, says which tensors keep their type all the same.
	Keep func(name string) bool
	// DropTied leaves out tensors that share all their bytes with one before
	// them. The metadata then say, under the name of the one, which other it is.
	DropTied bool
	// MaxShardSize is the most bytes of weights in one file of a folder, as long
	// as a single tensor is not larger; 0 is safetensors.DefaultShardSize.
	MaxShardSize int64
	// Stem is the name of the files in a folder, without number and ending;
	// empty is that of the source, "model" for a source that is one file or
	// whose stem is "pytorch_model".
	Stem string
	// Replace replaces what is there: a file, or a folder with all that is in it.
	Replace bool
	// Unverified does not read back what was written.
	Unverified bool
	// Threads is the number of goroutines that convert, 0 for one per core.
	Threads int
	// Progress, where it is set, is told how many of all bytes are done: first
	// of the task "converting", then of "verifying".
	Progress func(task string, done, total int64)
}

// Result is what a conversion wrote.
type Result struct {
	Tensors  int
	BytesIn  int64    // of the tensors that were read
	BytesOut int64    // of those that were written
	Files    []string // with weights, by their names
	Copied   []string // files of the model's folder that hold no weights
	Changes  []Change // of element types, in the order in which they came up
	Tied     [][]string
	Verified bool
}

// A Change is what became of all tensors of one type that were written in
// another.
type Change struct {
	From, To safetensors.DType
	Tensors  int
	Elements int64
	// MaxAbs is the largest difference between an element and what became of it,
	// At the first tensor with it, empty where there is none; Relative is the largest such difference over the
	// largest absolute value of its tensor. Neither counts what is in Overflow.
	MaxAbs   float64
	Relative float64
	At       string
	// Overflow is the number of elements that are beyond the new type, infinities
	// too where it has none. They became infinite, NaN or, in types that saturate
	// (F8_E4M3, as in PyTorch), the largest number; OverflowAt is the first tensor
	// with one.
	Overflow   int64
	OverflowAt string
	// Underflow is the number of elements that were not zero and are now.
	Underflow int64
}

// File writes the tensors of s to one file. A symbolic link at path is followed.
// After an error, also that of ctx, path is as it was. Errors about path itself
// are of the type [OutputError].
func File(ctx context.Context, path string, s *weights.Set, o Options) (*Result, error) {
	w, err := newWriter(ctx, s, o)
	if err != nil {
		return nil, err
	}
	if err := checkFile(path, s, o.Replace); err != nil {
		return nil, err
	}
	sweep(path)
	err = fsatomic.ReplaceFile(path, func(name string) error {
		if err := safetensors.WriteFile(name, w.entries(), w.metadata); err != nil {
			return err
		}
		return w.verify(name)
	})
	if err != nil {
		return nil, fmt.Errorf("convert: %s: %w", path, err)
	}
	w.result.Files = []string{filepath.Base(path)}
	return w.done(), nil
}

// Folder writes the tensors of s to a folder whose parent must exist, in shards
// of at most MaxShardSize. Where s was opened as a folder, what stands there
// beside the weights comes along; config.json then names the new element type
// where that is F32, BF16 or F16 and nothing keeps another one.
//
// The folder takes its name, or the place of the old one, when all of it has
// been written and read back. After an error, also that of ctx, dir is as it
// was. Errors about dir itself are of the type [OutputError].
func Folder(ctx context.Context, dir string, s *weights.Set, o Options) (*Result, error) {
	w, err := newWriter(ctx, s, o)
	if err != nil {
		return nil, err
	}
	stem, err := stemOf(s, o.Stem)
	if err != nil {
		return nil, err
	}
	if err := checkFolder(dir, s, o.Replace); err != nil {
		return nil, err
	}
	sweep(dir)
	if err := fsatomic.ReplaceDir(dir, func(temp string) error { return w.fill(temp, s, stem) }); err != nil {
		return nil, fmt.Errorf("convert: %s: %w", dir, err)
	}
	return w.done(), nil
}

// fill writes all that belongs into a folder, and reads the weights back.
func (w *writer) fill(dir string, s *weights.Set, stem string) error {
	if err := safetensors.WriteSharded(dir, w.entries(), w.options.MaxShardSize, w.metadata, safetensors.Stem(stem)); err != nil {
		return err
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range names {
		if filepath.Ext(e.Name()) == ".safetensors" {
			w.result.Files = append(w.result.Files, e.Name())
		}
	}
	slices.Sort(w.result.Files)
	if s.Folder != "" {
		if err := w.copyBeside(s.Folder, dir); err != nil {
			return err
		}
	}
	return w.verify(dir)
}

// copyBeside brings along what is no weights.
func (w *writer) copyBeside(from, to string) (err error) {
	var config []byte
	if name := weights.ConfigName(w.options.DType); name != "" && w.options.Keep == nil {
		raw, err := os.ReadFile(filepath.Join(from, weights.ConfigFile))
		if err == nil {
			config, err = weights.ChangeConfig(raw, map[string]any{"dtype": name})
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	w.result.Copied, err = weights.CopyBeside(from, to, config)
	return err
}
