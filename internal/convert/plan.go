package convert

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// writer streams a set of weights into files.
type writer struct {
	ctx      context.Context
	options  Options
	metadata map[string]string
	targets  []*target
	pool     *pool
	result   Result

	mu   sync.Mutex // shards may be written concurrently
	read int64      // bytes
}

// target is one tensor of the output.
type target struct {
	name     string
	view     *safetensors.View // source
	from, to tensor.DType      // Invalid if the bytes are not converted
	out      safetensors.DType
	size     int64    // in bytes
	sums     []uint64 // of the written chunks
	rounding rounding
}

// newWriter determines the tensors to write, in the order of the source.
func newWriter(ctx context.Context, s *weights.Set, o Options) (*writer, error) {
	out, err := outType(o.DType)
	if err != nil {
		return nil, err
	}
	views, err := s.Views()
	if err != nil {
		return nil, err
	}
	w := &writer{ctx: ctx, options: o}
	w.metadata, _ = s.Metadata()
	for _, same := range tied(views) {
		var names []string
		for _, i := range same {
			names = append(names, views[i].Name)
		}
		w.result.Tied = append(w.result.Tied, names)
		for _, i := range same[1:] {
			if !o.DropTied {
				break
			}
			if w.metadata == nil {
				w.metadata = map[string]string{}
			}
			w.metadata[views[i].Name] = names[0]
			views[i] = nil
		}
	}
	for _, v := range views {
		if v == nil {
			continue
		}
		t, err := newTarget(v, out, o.Keep)
		if err != nil {
			return nil, err
		}
		w.targets = append(w.targets, t)
		w.result.BytesIn += int64(v.Len())
		w.result.BytesOut += t.size
	}
	w.result.Tensors = len(w.targets)
	w.pool = newPool(o.Threads)
	return w, nil
}

func newTarget(v *safetensors.View, out safetensors.DType, keep func(string) bool) (*target, error) {
	t := &target{name: v.Name, view: v, out: v.DType, size: int64(v.Len())}
	if out == safetensors.Invalid || out == v.DType || ofQuantized(v.Name) || keep != nil && keep(v.Name) {
		return t, nil
	}
	from, err := tensor.ParseDType(v.DType.String())
	if err != nil {
		return t, nil // C64
	}
	if _, ok := precisions[from]; !ok {
		return t, nil
	}
	t.out, t.from = out, from
	if t.to, err = tensor.ParseDType(out.String()); err != nil {
		return nil, err
	}
	t.rounding.precision = precisions[t.to]
	e := safetensors.Entry{Name: v.Name, DType: out, Shape: v.Shape}
	t.size, err = e.Size()
	return t, err
}

// ofQuantized reports whether a tensor is, by its name, a scale or code book of a
// weight quantized by bitsandbytes. Like the codes, these are never converted.
func ofQuantized(name string) bool {
	return slices.ContainsFunc([]string{".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ".SCB"}, func(end string) bool {
		return strings.HasSuffix(name, end)
	})
}

// outType returns the requested element type, checked.
func outType(d tensor.DType) (safetensors.DType, error) {
	if d == tensor.Invalid {
		return safetensors.Invalid, nil
	}
	if _, ok := precisions[d]; !ok {
		return 0, fmt.Errorf("convert: element type %v, expected one of floats: %w", d, ErrOptions)
	}
	return safetensors.ParseDType(d.String())
}

// tied returns groups of tensors with the same bytes, shape and type: tied
// weights. Each group is in the order of views.
func tied(views []*safetensors.View) [][]int {
	type place struct {
		path         string
		from, length int64
		dtype        safetensors.DType
		shape        string
	}
	groups := map[place]int{}
	var all [][]int
	for i, v := range views {
		path, from, length := v.Extent()
		if length == 0 || from < 0 {
			continue
		}
		p := place{path, from, length, v.DType, fmt.Sprint(v.Shape)}
		g, ok := groups[p]
		if !ok {
			g = len(all)
			groups[p] = g
			all = append(all, nil)
		}
		all[g] = append(all[g], i)
	}
	return slices.DeleteFunc(all, func(g []int) bool { return len(g) < 2 })
}

// stemOf returns the stem of the files in a folder.
func stemOf(s *weights.Set, wanted string) (string, error) {
	switch {
	case wanted == "" && (s.Folder == "" && s.Index == nil || s.Stem == "pytorch_model"):
		return "model", nil
	case wanted == "":
		return s.Stem, nil
	case strings.ContainsAny(wanted, "/\\:\x00") || strings.HasPrefix(wanted, "."):
		return "", fmt.Errorf("convert: stem %q, expected the name of a file without its ending: %w", wanted, ErrOptions)
	}
	return wanted, nil
}

// entries returns the entries that the safetensors writer writes, which stream
// the targets.
func (w *writer) entries() []safetensors.Entry {
	entries := make([]safetensors.Entry, len(w.targets))
	for i, t := range w.targets {
		entries[i] = safetensors.Entry{Name: t.name, DType: t.out, Shape: t.view.Shape, Write: w.stream(t)}
	}
	return entries
}

// progress reports n more bytes of the source.
func (w *writer) progress(n int64) {
	if w.options.Progress == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read += n
	w.options.Progress("converting", w.read, w.result.BytesIn)
}

// done summarizes the changes of types.
func (w *writer) done() *Result {
	for _, t := range w.targets {
		if t.to == tensor.Invalid {
			continue
		}
		from := t.view.DType
		i := slices.IndexFunc(w.result.Changes, func(c Change) bool { return c.From == from })
		if i < 0 {
			i = len(w.result.Changes)
			w.result.Changes = append(w.result.Changes, Change{From: from, To: t.out})
		}
		w.result.Changes[i].add(t)
	}
	return &w.result
}

func (c *Change) add(t *target) {
	r := &t.rounding
	c.Tensors++
	c.Elements += t.size * 8 / int64(t.out.Bits())
	if r.most > c.MaxAbs {
		c.MaxAbs, c.At = r.most, t.name
	}
	if r.largest > 0 {
		c.Relative = max(c.Relative, r.most/r.largest)
	}
	if r.overflow > 0 && c.Overflow == 0 {
		c.OverflowAt = t.name
	}
	c.Overflow += r.overflow
	c.Underflow += r.underflow
}
