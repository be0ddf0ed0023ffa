// Package single opens diffusion transformers stored in a single safetensors file, as Black
// Forest Labs, ComfyUI and repackagers publish them. It supports the names of diffusers and
// of the original releases, with or without the prefix of a whole checkpoint, and 8-bit
// weights. Names and shapes determine the architecture. Weights are mapped without copying if
// possible: query, key and value in one matrix are row ranges of it.
package single

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
)

// ErrFile is wrapped if a file contains no supported transformer, or tensors of several
// kinds.
var ErrFile = errors.New("no diffusion transformer in a single file")

// Open opens the transformer in the file at path. config is the path of a diffusers config.json. If it is empty, Open uses the
// config.json next to the file, or infers the configuration from names and shapes if that is
// missing or not from diffusers. The transformer must read all its tensors; only tensors for
// other parts of a whole checkpoint may be left. Errors: ErrFile with the tensor, and errors
// of Config and model.Open.
func Open(path, config string) (*model.Model, error) {
	f, err := read(path)
	if err != nil {
		return nil, err
	}
	raw, err := f.config(config)
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	c, err := model.ParseConfig(raw)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("single: %s: %w", path, err), f.close())
	}
	set, err := f.set()
	if err != nil {
		return nil, err
	}
	m, err := model.OpenSet(c, path, set)
	if err != nil {
		return nil, f.named(err)
	}
	if err := f.unread(m); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Config returns the diffusers config.json that Open uses. Errors: ErrFile; model.ErrConfig
// if shapes do not determine all settings, or if the config is for another class.
func Config(path, config string) ([]byte, error) {
	f, err := read(path)
	if err != nil {
		return nil, err
	}
	raw, err := f.config(config)
	return raw, errors.Join(err, f.close())
}

// file is a single-file transformer.
type file struct {
	path  string
	raw   *weights.Set
	kind  kind
	parts []part
	names map[string]*part // by diffusers name
	marks []string         // marker tensors, which are not loaded
}

// read reads the header of a file.
func read(path string) (*file, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("single: %w: %s is a folder, expected a file", ErrFile, path)
	}
	raw, err := weights.Open(path)
	if err != nil {
		return nil, fmt.Errorf("single: %w", err)
	}
	if raw.Index != nil {
		return nil, errors.Join(fmt.Errorf("single: %w: %s is an index of several files", ErrFile, path), raw.Close())
	}
	f := &file{path: raw.Path(), raw: raw, names: map[string]*part{}}
	if f.kind, err = detect(raw.Names()); err == nil {
		err = f.split()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("single: %s: %w", path, err), raw.Close())
	}
	for i := range f.parts {
		f.names[f.parts[i].name] = &f.parts[i]
	}
	return f, nil
}

func (f *file) close() error { return f.raw.Close() }

// fail returns an error with the path of the file.
func (f *file) fail(is error, format string, args ...any) error {
	return fmt.Errorf("single: %s: %w: %s", f.path, is, fmt.Sprintf(format, args...))
}

// set returns the tensors under their diffusers names. It takes ownership of the file.
func (f *file) set() (*weights.Set, error) {
	placed := make([]safetensors.ExternalTensor, len(f.parts))
	shared, widened := false, ""
	for i := range f.parts {
		p := &f.parts[i]
		x, err := p.place(f.raw)
		if err != nil {
			return nil, errors.Join(f.fail(ErrFile, "tensor %q: %v", p.key, err), f.close())
		}
		placed[i] = x
		shared = shared || x.Reader != nil
		if widened == "" && x.DType != p.dtype {
			widened = fmt.Sprintf("weights of %v are widened to %v", p.dtype, x.DType)
		}
	}
	metadata, _ := f.raw.Metadata()
	mapped, err := weights.Place(f.path, placed, metadata, widened)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("single: %w", err), f.close())
	}
	if !shared { // otherwise the readers close it
		if err := f.close(); err != nil {
			return nil, errors.Join(err, mapped.Close())
		}
	}
	return mapped, nil
}

// named adds to an error of a model the name that a missing tensor should have in the file.
func (f *file) named(err error) error {
	missing, ok := errors.AsType[*safetensors.NotFoundError](err)
	if !ok {
		return err
	}
	if key := f.kind.key(missing.Name); key != missing.Name {
		return fmt.Errorf("single: %s: %q is missing: %w", f.path, key, err)
	}
	return err
}

// unread returns an error if the model does not read a tensor.
func (f *file) unread(m *model.Model) error {
	used := map[string]bool{}
	for _, name := range m.Used() {
		used[name] = true
	}
	for _, p := range f.parts {
		if !used[p.name] && !used[p.of] {
			return f.fail(ErrFile, "tensor %q: a %s of its configuration reads none of that name%s", p.key, f.kind.Class, suggest.DidYouMean(p.name, m.Used()))
		}
	}
	return nil
}

// cut splits a name at its last dot.
func cut(name string) (module, param string) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", name
	}
	return name[:i], name[i+1:]
}
