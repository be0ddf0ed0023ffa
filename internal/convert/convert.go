// Package convert writes the tensors of any set of weights as safetensors. It
// converts files written by torch.save, splits a file into shards or joins
// them, and changes the element type.
//
// Tensors are streamed in chunks, so a model larger than memory can be
// converted. The output is read back and verified before it is renamed to its
// final name, so it is either complete or absent.
package convert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// Errors that this package wraps, in addition to the errors of weights,
// safetensors and the file system.
var (
	// ErrOptions reports an invalid element type or file stem.
	ErrOptions = errors.New("bad option")
	// ErrExists reports output that exists while Replace is not set.
	ErrExists = errors.New("it exists")
	// ErrSource reports output that is the source, or contains it.
	ErrSource = errors.New("it is what is read")
	// ErrVerify reports bytes read back that differ from the computed ones, or
	// computed elements that are not the nearest number of the type.
	ErrVerify = errors.New("not what was written")
)

// Options configure how weights are written. The zero value keeps the element
// types and replaces nothing.
type Options struct {
	// DType is the element type of all float tensors: F64, F32, BF16, F16 or an
	// 8-bit type with a sign and a mantissa. Invalid keeps the type of each
	// tensor. Integers, booleans, complex numbers, scales (F8_E8M0) and types
	// smaller than a byte are never converted.
	DType tensor.DType
	// Keep, if not nil, selects tensors that keep their type in any case.
	Keep func(name string) bool
	// DropTied omits tensors that share all their bytes with an earlier one. The
	// metadata map each omitted name to the name of the other.
	DropTied bool
	// MaxShardSize is the maximum number of bytes of weights per file in a
	// folder; a larger tensor gets its own file. Zero means
	// safetensors.DefaultShardSize.
	MaxShardSize int64
	// Stem is the name of the files in a folder, without number and extension.
	// Empty means the stem of the source, or "model" if the source is a single
	// file or its stem is "pytorch_model".
	Stem string
	// Replace replaces existing output: a file, or a folder with everything in
	// it.
	Replace bool
	// Unverified skips reading back the output.
	Unverified bool
	// Threads is the number of converting goroutines. Zero means one per core.
	Threads int
	// Progress, if not nil, is called with the number of bytes done and the
	// total: first for the task "converting", then for "verifying".
	Progress func(task string, done, total int64)
}

// Result describes the output of a conversion.
type Result struct {
	Tensors  int
	BytesIn  int64    // of the source tensors
	BytesOut int64    // of the written tensors
	Files    []string // weights files, by name
	Copied   []string // other files copied from the model's folder
	Changes  []Change // of element types, in order of appearance
	Tied     [][]string
	Verified bool
}

// A Change summarizes the conversion of all tensors from one type to another.
type Change struct {
	From, To safetensors.DType
	Tensors  int
	Elements int64
	// MaxAbs is the largest absolute error of an element, and At the first tensor with it, empty if there is
	// none. Relative is the largest error divided by the largest absolute value of its tensor. Elements
	// counted by Overflow are excluded.
	MaxAbs   float64
	Relative float64
	At       string
	// Overflow is the number of elements out of range of the new type, including
	// infinities if it has none. They became infinite, NaN or, in types that
	// saturate (F8_E4M3, as in PyTorch), the largest number. OverflowAt is the
	// first tensor with such an element.
	Overflow   int64
	OverflowAt string
	// Underflow is the number of nonzero elements that became zero.
	Underflow int64
}

// File writes the tensors of s to one file. It follows a symbolic link at path.
// After an error, including that of ctx, path is unchanged. Errors about path
// itself are of type [OutputError].
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
// of at most MaxShardSize. If s was opened as a folder, its other files are
// copied too. config.json then names the new element type, if that is F32, BF16
// or F16 and no tensor keeps another one.
//
// The folder replaces the old one, or gets its name, after everything has been
// written and read back. After an error, including that of ctx, dir is
// unchanged. Errors about dir itself are of type [OutputError].
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

// fill writes the contents of a folder and verifies the weights.
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

// copyBeside copies the files that are not weights.
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
