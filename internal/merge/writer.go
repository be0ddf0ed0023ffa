package merge

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// writer streams a model through a merger into a folder.
type writer struct {
	adapter string // folder of the adapter
	model   *model.Model
	merger  *lora.Merger
	options Options

	weights  []weight
	byStored map[string]*weight  // the first of each name in the files
	parts    map[string][]string // of the weights that are stored as rows of one, by its name in the model
	result   Result

	scaled   map[string]string   // weights in 8-bit floats by the name of their scales, in the files
	rounded  map[string]*float8s // merged weights of which a part is still to be written, by name in the files
	rounding rounding
}

// weight is one tensor of the output.
type weight struct {
	name string            // name in the file
	is   string            // name in the model, which may differ
	view *safetensors.View // original value; nil if no file contains the weight
	out  safetensors.DType

	shape []int
	sum   [sha256.Size]byte // of the computed bytes
}

// write fills the folder: weights, then the other files; then it verifies the
// weights.
func (w *writer) write(ctx context.Context, dir string) error {
	if err := w.list(); err != nil {
		return err
	}
	done := 0 // shards have an order of their own
	entries := make([]safetensors.Entry, len(w.weights))
	for i := range w.weights {
		x := &w.weights[i]
		entries[i] = safetensors.Entry{Name: x.name, DType: x.out, Shape: x.shape, Write: func(out io.Writer) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := w.tensor(out, x); err != nil {
				return err
			}
			done++
			w.progress("merging", done)
			return nil
		}}
	}
	if err := safetensors.WriteSharded(dir, entries, w.options.MaxShardSize, map[string]string{"format": "pt"}); err != nil {
		return err
	}
	for _, name := range w.merger.Remaining() {
		if !w.staysTied(name) {
			return fmt.Errorf("the model has no tensor %q to merge into", name)
		}
	}
	config, err := mergedConfig(w.model, w.options.DType, len(w.result.Untied) > 0)
	if err != nil {
		return err
	}
	if _, err := weights.CopyBeside(w.model.Dir, dir, config, model.PackedFiles()...); err != nil {
		return err
	}
	if err := w.copyTexts(dir); err != nil {
		return err
	}
	return w.verify(ctx, dir)
}

func (w *writer) progress(task string, done int) {
	if w.options.Progress != nil {
		w.options.Progress(task, done, len(w.weights))
	}
}

// list determines the tensors to write, in the order of the model's files. It
// omits copies of tied weights, which are never read and would no longer be
// copies after the merge.
func (w *writer) list() error {
	set, is := w.model.Set(), map[string]string{}
	w.parts = map[string][]string{}
	for _, name := range w.model.Used() {
		if fused, part, parts := w.model.Fused(name); parts > 0 {
			if w.parts[fused] == nil {
				w.parts[fused] = make([]string, parts)
			}
			w.parts[fused][part] = name
			is[w.inFile(name)] = fused
		} else if !w.isFresh(name) {
			is[w.inFile(name)] = strings.TrimSuffix(name, nn.TransposedSuffix) // merges change what the file has
		}
	}
	untied := w.merger.Untied()
	skip := map[string]bool{}
	for _, u := range untied {
		w.result.Untied = append(w.result.Untied, u.Name)
		skip[w.inFile(u.Name)] = true
	}
	for _, m := range w.model.Modules() {
		if w.staysTied(m.Name+".weight") && w.merger.Changes(m.TiedTo+".weight") {
			skip[w.inFile(m.Name+".weight")] = true
		}
	}
	add := func(name, from string) error {
		v, err := set.Lookup(from)
		if err != nil {
			return err
		}
		x := weight{name: name, is: name, view: v, out: w.outType(v.DType), shape: v.Shape}
		if of := is[name]; of != "" {
			x.is = of
		}
		if w.classifies() {
			x.name = w.headed(x.name, x.is)
		}
		w.weights = append(w.weights, x)
		return nil
	}
	if err := w.findScales(skip); err != nil {
		return err
	}
	for _, name := range set.Names() {
		if skip[name] || w.classifies() && is[name] == "" {
			continue
		}
		if err := add(name, name); err != nil {
			return err
		}
	}
	for _, u := range untied {
		if err := add(u.Name, w.inFile(u.From)); err != nil {
			return err
		}
	}
	if err := w.addFresh(); err != nil {
		return err
	}
	w.byStored = map[string]*weight{}
	for i := range w.weights {
		if x := &w.weights[i]; x.view != nil && w.byStored[x.view.Name] == nil {
			w.byStored[x.view.Name] = x
		}
	}
	return nil
}

// inFile returns the name of a model's weight in its files.
func (w *writer) inFile(name string) string { return w.model.Stored(name)[0] }

// staysTied reports whether a weight is tied to another one and remains so.
func (w *writer) staysTied(name string) bool {
	return !slices.Contains(w.result.Untied, name) &&
		slices.ContainsFunc(w.model.Modules(), func(m nn.Module) bool { return m.TiedTo != "" && m.Name+".weight" == name })
}

// outType returns the element type of the result; types other than floats are
// kept.
func (w *writer) outType(d safetensors.DType) safetensors.DType {
	in, err := tensor.ParseDType(d.String())
	if w.options.DType == tensor.Invalid || err != nil || !in.IsFloat() {
		return d
	}
	out, err := safetensors.ParseDType(w.options.DType.String())
	if err != nil {
		return d
	}
	return out
}

// tensor computes one tensor, writes it and records its checksum.
func (w *writer) tensor(out io.Writer, x *weight) error {
	h := sha256.New()
	out = io.MultiWriter(out, h)
	defer func() { h.Sum(x.sum[:0]) }()
	if data, err := w.float8(x); err != nil || data != nil {
		if err != nil {
			return fmt.Errorf("tensor %q: %w", x.name, err)
		}
		w.result.Bytes += int64(len(data))
		_, err = out.Write(data)
		return err
	}
	if x.view != nil && !w.changes(x) && x.out == x.view.DType {
		n, err := x.view.WriteTo(out)
		w.result.Bytes += n
		return err
	}
	values, in, err := w.values(x)
	if err != nil {
		return fmt.Errorf("tensor %q: %w", x.name, err)
	}
	to, err := tensor.ParseDType(x.out.String())
	if err != nil {
		return fmt.Errorf("tensor %q: %w", x.name, err)
	}
	data, err := w.compute(x, values, in, to)
	if err != nil {
		return err
	}
	w.result.Bytes += int64(len(data))
	_, err = out.Write(data)
	return err
}

// values returns the elements of the model's weight and their original type.
func (w *writer) values(x *weight) ([]float32, tensor.DType, error) {
	if x.view == nil {
		v, err := w.model.Weight(x.is)
		if err != nil {
			return nil, 0, err
		}
		values, err := v.Float32s()
		return values, v.DType, err
	}
	in, err := tensor.ParseDType(x.view.DType.String())
	if err != nil {
		return nil, 0, err
	}
	if in == tensor.F8E4M3 {
		f, err := w.model.Float8(x.view.Name)
		if err != nil {
			return nil, 0, err
		}
		return f.Values, in, nil
	}
	values := make([]float32, x.view.Len()*8/in.Bits())
	return values, in, x.view.WithBytes(func(data []byte) error { return tensor.ToFloat32(values, data, in) })
}

// compute returns the merged tensor in its element type.
func (w *writer) compute(x *weight, values []float32, in, to tensor.DType) ([]byte, error) {
	changed := w.changes(x)
	names := w.names(x)
	for i, name := range names {
		n := len(values) / len(names)
		if _, err := w.merger.Merge(name, values[i*n:][:n], in); err != nil {
			return nil, err
		}
	}
	if changed {
		w.result.Merged++
	}
	data := make([]byte, len(values)*to.Bits()/8)
	if err := tensor.FromFloat32(data, values, to); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", x.name, err)
	}
	if to == tensor.F16 {
		if i := overflow(values, data); i >= 0 {
			return nil, fmt.Errorf("tensor %q: element %d is %v, more than f16 holds; bf16 and f32 have room for it: %w", x.name, i, values[i], lora.ErrNotFinite)
		}
	}
	return data, nil
}

// names returns the names that a tensor of the output has in the model, in the order of its rows.
func (w *writer) names(x *weight) []string {
	if parts := w.parts[x.is]; parts != nil {
		return parts
	}
	return []string{x.is}
}

// changes reports whether the adapter changes a tensor.
func (w *writer) changes(x *weight) bool { return slices.ContainsFunc(w.names(x), w.merger.Changes) }

// overflow returns the index of a finite number that became infinite in f16.
func overflow(values []float32, data []byte) int {
	for i, v := range values {
		bits := uint16(data[2*i]) | uint16(data[2*i+1])<<8
		if bits&0x7fff == 0x7c00 && !math.IsInf(float64(v), 0) {
			return i
		}
	}
	return -1
}
