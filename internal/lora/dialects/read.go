package dialects

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/lora"
)

// Options holds the exceptions that [Read] allows.
type Options struct {
	// TransformerOnly ignores the tensors of text encoders.
	TransformerOnly bool
}

// Read reads an adapter for a model from a file of any form. The tensors are copies.
//
// The alpha of each layer comes from the metadata of diffusers or from a tensor, and
// otherwise equals the rank. If both are present, they must agree. A layer that is
// several modules of the model becomes an adapter for each of them: A is shared and the
// rows of B are split. If B is block-diagonal, its blocks and A are split as well.
//
// Errors: a [lora.CheckError] with all tensors that do not fit, of the kinds
// lora.ErrUnmatched, ErrMissing, ErrShape, ErrDType, ErrNotFinite, ErrUnsupported and
// [ErrElsewhere]; lora.ErrConfig; the errors of weights.Open.
func Read(path string, model lora.Model, o Options) (*lora.Adapter, error) {
	set, err := weights.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", path, err)
	}
	defer set.Close()
	f := &file{path: path, set: set, model: model, names: namesOf(model)}
	if kind := f.lycorisKind(); kind >= 0 {
		return f.lycoris(kind, o)
	}
	f.sort(o)
	var pieces []piece
	for _, g := range f.groups {
		pieces = append(pieces, f.pieces(g)...)
	}
	pieces = f.once(pieces)
	if err := f.err(); err != nil {
		return nil, err
	}
	if len(pieces) == 0 {
		return nil, fmt.Errorf("lora: adapter %s: %w: the file has no tensors for the transformer", path, lora.ErrMissing)
	}
	c, err := f.config(pieces)
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", path, err)
	}
	return f.adapter(c, pieces)
}

// adapter builds the adapter from the pieces and checks it against the model.
func (f *file) adapter(c *lora.Config, pieces []piece) (*lora.Adapter, error) {
	p, err := lora.NewPlacement(c, f.model)
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", f.path, err)
	}
	var tensors []lora.Tensor
	for _, x := range pieces {
		if t, ok := p.Target(x.module.Name); ok && x.given && float32(t.Alpha) != float32(x.alpha) {
			f.add(lora.ErrConfig, x.key(alpha), "it is %v, and %v in the metadata of the file", x.alpha, t.Alpha)
		}
		tensors = append(tensors, x.tensors()...)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.checked(c, p, tensors)
}

// checked returns the adapter of the tensors if they fit the model.
func (f *file) checked(c *lora.Config, p *lora.Placement, tensors []lora.Tensor) (*lora.Adapter, error) {
	a, err := lora.New(c, tensors)
	if err != nil {
		return nil, err
	}
	a.Dir = f.path
	if err := a.Check(p, lora.CheckOptions{AllowZeroB: true}).Err(); err != nil {
		return nil, err
	}
	return a, nil
}

// Open opens an adapter of any form: a file as [Read] does, a folder of PEFT's or the
// weights in it as [lora.Load] does, or a folder with a File.
func Open(path string, model lora.Model, o Options) (*lora.Adapter, error) {
	if a, err := openPEFT(path); a != nil || err != nil {
		return a, err
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return Read(path, model, o)
	}
	file := filepath.Join(path, File)
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("lora: adapter %s: %w: neither %s nor %s is in the folder; other files are opened by their own names", path, os.ErrNotExist, lora.ConfigFile, File)
	}
	return Read(file, model, o)
}

// openPEFT opens a folder of PEFT, or that of the weights at path. It returns nil if path is neither.
func openPEFT(path string) (*lora.Adapter, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("lora: adapter: %w", err)
	}
	if !info.IsDir() {
		if filepath.Base(path) != lora.WeightsFile {
			return nil, nil
		}
		path = filepath.Dir(path)
	}
	if _, err := os.Stat(filepath.Join(path, lora.ConfigFile)); err != nil {
		return nil, nil
	}
	return lora.Load(path)
}

// LoadState opens an adapter of any form for a model and checks it completely, for
// image generation or a merge. Errors: those of [Open] and of [lora.Adapter.Check].
func LoadState(path string, w nn.Weights, model lora.Model, o lora.CheckOptions) (*lora.State, error) {
	a, err := Open(path, model, Options{})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	p, _, err := a.Place(model, nil, o)
	if err != nil {
		return nil, err
	}
	s, err := p.StateOf(a, w)
	if err != nil {
		return nil, err
	}
	s.KeepTypes(a)
	return s, nil
}
