// Package single opens diffusion transformers that lie in a single file of safetensors, as
// Black Forest Labs, ComfyUI and those who repack models publish them: under the names of
// diffusers or of the first release, with the prefix of a larger checkpoint or without, in
// whole or in 8 bits. Which one it is, is found from names and shapes. Weights are used
// where they lie: query, key and value in one matrix are rows of it.
package single

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/weights"
)

// ErrFile is wrapped where a file has no transformer that is supported, or is not of one
// kind.
var ErrFile = errors.New("no diffusion transformer in a single file")

// Open opens the transformer in the file at path, whose architecture must be registered
// (package dit). config is the path of a config.json of diffusers; "" stands for the
// config.json beside the file, and where there is none of diffusers, what names and shapes
// say. All tensors must be read by the transformer, but those of other parts of a whole
// checkpoint. Errors: ErrFile with the tensor, those of Config, and those of model.Open.
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

// Config is the config.json of diffusers that Open goes by. Errors: ErrFile;
// model.ErrConfig where shapes do not tell all of it, or where it is one of another class.
func Config(path, config string) ([]byte, error) {
	f, err := read(path)
	if err != nil {
		return nil, err
	}
	raw, err := f.config(config)
	return raw, errors.Join(err, f.close())
}

// file is a file with a transformer.
type file struct {
	path  string
	raw   *weights.Set
	kind  kind
	parts []part
	names map[string]*part // by the name in diffusers
	marks []string         // tensors that say something and are not read
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

// fail is an error of the file.
func (f *file) fail(is error, format string, args ...any) error {
	return fmt.Errorf("single: %s: %w: %s", f.path, is, fmt.Sprintf(format, args...))
}

// set maps the tensors under the names that they have in diffusers. It takes the file over.
func (f *file) set() (*weights.Set, error) {
	placed := make([]safetensors.Placed, len(f.parts))
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
	if !shared { // readers close it
		if err := f.close(); err != nil {
			return nil, errors.Join(err, mapped.Close())
		}
	}
	return mapped, nil
}

// named is an error of a model with the name that a missing tensor should have had in the
// file.
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

// unread refuses tensors that the model does not read.
func (f *file) unread(m *model.Model) error {
	used := map[string]bool{}
	for _, name := range m.Used() {
		used[name] = true
	}
	for _, p := range f.parts {
		if !used[p.name] && !used[p.of] {
			return f.fail(ErrFile, "tensor %q: a %s of its configuration reads none of that name%s", p.key, f.kind.class, suggest.DidYouMean(p.name, m.Used()))
		}
	}
	return nil
}

// cut is a name without the part behind its last dot, and that part.
func cut(name string) (module, param string) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", name
	}
	return name[:i], name[i+1:]
}

// has reports whether the file has a tensor, by its name in diffusers.
func (f *file) has(name string) bool { return f.names[name] != nil }

// marked reports whether the file has a mark.
func (f *file) marked(name string) bool { return slices.Contains(f.marks, name) }
