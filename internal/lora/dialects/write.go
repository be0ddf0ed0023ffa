package dialects

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Forms lists the forms of LoRA that are written.
func Forms() []Form { return []Form{Diffusers, Kohya, ComfyUI} }

// ParseForm finds a form by its name.
func ParseForm(name string) (Form, error) {
	var known []string
	for _, f := range append(Forms(), Lycoris) {
		if string(f) == name {
			return f, nil
		}
		known = append(known, string(f))
	}
	return "", fmt.Errorf("lora: form of an adapter: %s", suggest.Expected(name, known))
}

// Write atomically writes an adapter of a model to one file. The tensors have PEFT's
// keys, as from lora.State.Tensors.
//
// The diffusers form stores numbers unchanged, and the whole configuration. The other
// forms can store only alpha of the configuration. In them layers have the names that
// the tools know, and modules that form one layer there are joined: A is concatenated
// and B is block-diagonal.
//
// Errors: those of [lora.NewPlacement] and [lora.Adapter.Check]; lora.ErrUnsupported
// for anything that the form cannot store or diffusers would not load from it.
func Write(path string, form Form, model lora.Model, c *lora.Config, tensors []lora.Tensor) error {
	if _, err := ParseForm(string(form)); err != nil {
		return err
	}
	w, err := newWriter(form, model, c, tensors)
	if err != nil {
		return err
	}
	entries, metadata, err := w.file()
	if err != nil {
		return err
	}
	if err := safetensors.WriteFile(path, entries, metadata, safetensors.Durable()); err != nil {
		return fmt.Errorf("lora: save adapter: %w", err)
	}
	return nil
}

// writer is an adapter that is written.
type writer struct {
	form      Form
	model     lora.Model
	placement *lora.Placement
	adapter   *lora.Adapter
}

func newWriter(form Form, model lora.Model, c *lora.Config, tensors []lora.Tensor) (*writer, error) {
	p, err := lora.NewPlacement(c, model)
	if err != nil {
		return nil, err
	}
	a, err := lora.New(c, tensors)
	if err != nil {
		return nil, err
	}
	if err := a.Check(p, lora.CheckOptions{AllowZeroB: true, AllowRandomBase: true}).Err(); err != nil {
		return nil, err
	}
	w := &writer{form, model, p, a}
	return w, w.check()
}

// check returns an error if the form cannot store the adapter.
func (w *writer) check() error {
	refuse := func(what string, args ...any) error {
		return fmt.Errorf("lora: save adapter: %s: %w by the form %s", fmt.Sprintf(what, args...), lora.ErrUnsupported, w.form)
	}
	switch p := w.placement; {
	case len(p.Saved) > 0:
		return refuse("the module %q is saved whole", p.Saved[0].Name)
	case len(p.Biases) > 0:
		return refuse("the bias of %q is trained", p.Biases[0].Name)
	case len(p.Tokens) > 0:
		return refuse("tokens of %q are trained", p.Tokens[0].Name)
	}
	for _, t := range w.placement.Targets {
		isLycoris := t.Method() == lora.LoHa().Method() || t.Method() == lora.LoKr(false, -1).Method()
		switch {
		case isLycoris != (w.form == Lycoris):
			return refuse("%s", t.Method())
		case t.Kind != lora.Linear:
			return refuse("%q is no linear layer but of the kind %v", t.Name, t.Kind)
		case t.MutatesBase():
			return refuse("%q has its adapter taken out of the base (%s)", t.Name, t.Init)
		case t.Method() != lora.MethodLoRA && w.form != Diffusers && !isLycoris:
			return refuse("%s", t.Method())
		case t.LoraBias && w.form != Diffusers:
			return refuse("lora_bias")
		}
	}
	return nil
}

// file returns the entries and metadata of the file.
func (w *writer) file() ([]safetensors.Entry, map[string]string, error) {
	if w.form == Lycoris {
		entries, err := w.lycorisFile()
		return entries, map[string]string{"format": "pt"}, err
	}
	if w.form != Diffusers {
		return w.joined()
	}
	c := w.placement.Config()
	c.InitLoraWeights = lora.InitDefault // already done, and not to be repeated by the loader
	text, err := formatMetadata(c)
	if err != nil {
		return nil, nil, fmt.Errorf("lora: save adapter: %w", err)
	}
	var entries []safetensors.Entry
	for _, s := range w.placement.Tensors() {
		t, _ := w.adapter.Tensor(s.Key)
		e, err := entry(component+strings.TrimPrefix(s.Key, "base_model.model."), t)
		if err != nil {
			return nil, nil, err
		}
		entries = append(entries, e)
	}
	return entries, map[string]string{"format": "pt", metadataKey: text}, nil
}
