package merge

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/llamacpp"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// GGUFOptions configure how a model is written as a GGUF file.
type GGUFOptions struct {
	// Type is the name of the type of matrices (see gguf.Writable). Empty keeps the
	// type of each. Vectors and routers are f32. With q4_0 and q4_k the output matrix,
	// or the embedding that is also the output, is q6_k, as in files of llama.cpp. A
	// matrix whose rows are no whole number of blocks has the smallest larger type
	// that holds it.
	Type string
	// Replace replaces an existing file.
	Replace bool
	// Name is the name of the model in the file; empty means that of its folder.
	Name     string
	Progress func(task string, done, total int)
	// Note, if not nil, receives notes about settings that llama.cpp lacks.
	Note func(text string)
}

// WriteGGUF merges an adapter into a model as Write does, and writes the result as a
// GGUF file for llama.cpp. a may be nil, for the model itself. Errors: the errors of
// Write, and llamacpp.ErrUnsupported.
func WriteGGUF(ctx context.Context, path string, m *model.Model, a *lora.Adapter, p *lora.Placement, o GGUFOptions) (*Result, error) {
	g := &ggufWriter{options: o}
	if o.Type != "" {
		t, err := gguf.ParseType(o.Type)
		if err != nil {
			return nil, fmt.Errorf("merge: %w: %w", err, ErrOptions)
		}
		g.kind, g.given = t, true
	}
	if err := checkFile(path, o.Replace); err != nil {
		return nil, err
	}
	g.writer = writer{model: m, options: Options{Progress: o.Progress}}
	if a != nil {
		merger, err := lora.NewMerger(a, p)
		if err != nil {
			return nil, fmt.Errorf("merge: %s: %w", strings.TrimSpace("adapter "+a.Dir), err)
		}
		g.adapter, g.merger = a.Dir, merger
	}
	if err := g.write(ctx, path); err != nil {
		return nil, fmt.Errorf("merge: %s: %w", path, err)
	}
	r := g.result
	return &r, nil
}

// checkFile rejects an output file that must not be written.
func checkFile(path string, replace bool) error {
	fail := func(err error) error { return &OutputError{path, err} }
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return fail(errors.New("it is a folder, expected the name of a file"))
	case err == nil && !replace:
		return fail(os.ErrExist)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fail(err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fail(fmt.Errorf("there is no folder %s", filepath.Dir(path)))
	}
	return nil
}

// ggufWriter streams a model through a merger into a GGUF file.
type ggufWriter struct {
	writer
	options     GGUFOptions
	kind        gguf.Type
	given       bool // kind applies
	description *llamacpp.Description
	parts       []ggufPart
	sums        [][sha256.Size]byte
	kept        *merged
}

// ggufPart is a tensor of the file.
type ggufPart struct {
	llamacpp.Part
	weights []string // of the model; several for a stack of experts
	from    string   // the weight that weights[0] is based on
	kind    gguf.Type
	shape   []int
}

// merged is a merged weight. Several parts may share it.
type merged struct {
	name   string
	values []float32
}

func (g *ggufWriter) write(ctx context.Context, path string) error {
	d, err := llamacpp.Describe(g.model)
	if err != nil {
		return err
	}
	g.description = d
	if most := g.model.Config.MaxLength(); d.Context < most && g.options.Note != nil {
		g.options.Note(fmt.Sprintf("context_length is %d instead of %d, because llama.cpp has no sliding window for %s: shorter texts are computed alike", d.Context, most, d.Architecture))
	}
	if d.Short > 0 && d.Short < d.Context && g.options.Note != nil {
		g.options.Note(fmt.Sprintf("llama.cpp rotates texts of up to %d tokens as this model does only with a context (-c) of at most %d: with a larger one it takes the factors of longer texts for all", d.Short, d.Short))
	}
	if err := g.listParts(); err != nil {
		return err
	}
	keys, err := g.keys()
	if err != nil {
		return err
	}
	entries := make([]gguf.Entry, 0, len(g.parts)+len(d.Extra))
	g.sums = make([][sha256.Size]byte, len(g.parts)+len(d.Extra))
	add := func(name string, kind gguf.Type, shape []int, values func() ([]float32, error)) {
		i := len(entries)
		entries = append(entries, gguf.Entry{Name: name, Type: kind, Shape: shape, Write: func(w io.Writer) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			x, err := values()
			if err != nil {
				return err
			}
			data := make([]byte, kind.Bytes(len(x)))
			if err := gguf.Quantize(data, x, kind); err != nil {
				return err
			}
			if kind == gguf.F16 {
				if at := overflow(x, data); at >= 0 {
					return fmt.Errorf("element %d is %v, more than f16 holds; bf16 and f32 have room for it: %w", at, x[at], lora.ErrNotFinite)
				}
			}
			g.sums[i] = sha256.Sum256(data)
			g.result.Bytes += int64(len(data))
			g.report("merging", i+1)
			_, err = w.Write(data)
			return err
		}})
	}
	for i := range g.parts {
		p := &g.parts[i]
		add(p.Name, p.kind, p.shape, func() ([]float32, error) { return g.part(p) })
	}
	for _, x := range d.Extra {
		add(x.Name, gguf.F32, []int{len(x.Values)}, func() ([]float32, error) { return x.Values, nil })
	}
	g.result.Tensors = len(entries)
	g.result.Files = []string{filepath.Base(path)}
	return fsatomic.ReplaceFile(path, func(temp string) error {
		if err := gguf.Write(temp, keys, entries); err != nil {
			return err
		}
		if g.merger != nil {
			for _, name := range g.merger.Remaining() {
				if !g.staysTied(name) {
					return fmt.Errorf("the model has no tensor %q to merge into", name)
				}
			}
		}
		return g.verifyFile(ctx, temp)
	})
}

// verifyFile reads all tensors back.
func (g *ggufWriter) verifyFile(ctx context.Context, path string) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for i := range f.Tensors {
		if err := ctx.Err(); err != nil {
			return err
		}
		t := &f.Tensors[i]
		if err := f.WithBytes(t, func(data []byte) error {
			if sha256.Sum256(data) != g.sums[i] {
				return fmt.Errorf("tensor %q: %w", t.Name, ErrVerify)
			}
			return nil
		}); err != nil {
			return err
		}
		g.report("verifying", i+1)
	}
	return nil
}

func (g *ggufWriter) report(task string, done int) {
	if g.options.Progress != nil {
		g.options.Progress(task, done, g.result.Tensors)
	}
}

// listParts determines the tensors of the file, in the order of the model.
func (g *ggufWriter) listParts() error {
	if len(g.model.Fresh()) > 0 {
		return fmt.Errorf("%w: %s: a classification head", llamacpp.ErrUnsupported, g.model.Fresh()[0])
	}
	type source struct{ name, from string }
	var sources []source
	for _, name := range g.model.Used() {
		if strings.HasSuffix(name, ".weight"+nn.ScaleSuffix) {
			continue // the weight is scaled when it is read
		}
		sources = append(sources, source{name, name})
	}
	if g.merger != nil {
		for _, u := range g.merger.Untied() {
			g.result.Untied = append(g.result.Untied, u.Name)
			sources = append(sources, source{u.Name, u.From})
		}
	}
	stacks := map[string]int{}
	untied := len(g.result.Untied) > 0
	tied := !untied && !slices.ContainsFunc(g.model.Used(), func(name string) bool { return strings.HasSuffix(name, "lm_head.weight") })
	for _, s := range sources {
		parts, err := g.description.Parts(s.name)
		if err != nil {
			return err
		}
		w, err := g.model.Weight(s.from)
		if err != nil {
			return err
		}
		for _, p := range parts {
			if untied && p.Name == "output.weight" && s.name == s.from {
				continue // the adapter unties it
			}
			if i, ok := stacks[p.Name]; ok {
				g.parts[i].weights = append(g.parts[i].weights, s.name)
				continue
			}
			shape := p.Shape(w.Shape)
			kind := g.kindOf(&p, w.DType, shape[len(shape)-1], tied)
			if p.Experts > 0 {
				stacks[p.Name] = len(g.parts)
				shape = append([]int{p.Experts}, shape...)
			}
			g.parts = append(g.parts, ggufPart{Part: p, weights: []string{s.name}, from: s.from, kind: kind, shape: shape})
		}
	}
	return nil
}

// kindOf returns the type of a part whose rows have the given length, of a model whose
// output matrix may be tied to the embedding.
func (g *ggufWriter) kindOf(p *llamacpp.Part, d tensor.DType, row int, tied bool) gguf.Type {
	if p.Plain {
		return gguf.F32
	}
	kind := g.kind
	if !g.given {
		switch d {
		case tensor.F16:
			kind = gguf.F16
		case tensor.BF16, tensor.F8E4M3, tensor.F8E5M2:
			kind = gguf.BF16
		default:
			kind = gguf.F32
		}
	}
	output := p.Name == "output.weight" || tied && p.Name == "token_embd.weight"
	if output && (kind == gguf.Q4_0 || kind == gguf.Q4_K) {
		kind = gguf.Q6_K
	}
	for _, next := range []gguf.Type{gguf.Q8_0, gguf.F16} {
		if n, _ := kind.BlockSize(); row%n == 0 {
			break
		}
		kind = next
	}
	return kind
}

// part computes the elements of a tensor.
func (g *ggufWriter) part(p *ggufPart) ([]float32, error) {
	var out []float32
	for _, name := range p.weights {
		from := name
		if len(p.weights) == 1 {
			from = p.from
		}
		w, err := g.model.Weight(from)
		if err != nil {
			return nil, err
		}
		values, err := g.mergedValues(name, from)
		if err != nil {
			return nil, err
		}
		values = p.Apply(values, w.Shape)
		if len(p.weights) == 1 {
			return values, nil
		}
		out = append(out, values...)
	}
	return out, nil
}

// mergedValues returns a merged weight. The last one is kept, because the next part may
// share it.
func (g *ggufWriter) mergedValues(name, from string) ([]float32, error) {
	if g.kept != nil && g.kept.name == name {
		return g.kept.values, nil
	}
	w, err := g.model.Weight(from)
	if err != nil {
		return nil, err
	}
	values, err := w.Float32s()
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	if g.merger != nil {
		changed, err := g.merger.Merge(name, values, w.DType)
		if err != nil {
			return nil, err
		}
		if changed {
			g.result.Merged++
		}
	}
	g.kept = &merged{name, values}
	return values, nil
}
