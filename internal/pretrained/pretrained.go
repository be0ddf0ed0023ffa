// Package pretrained opens models for inference: a checkpoint with an adapter, and the tokenizer
// and the chat template that go with both. [Open] returns a [Model].
package pretrained

import (
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/classify"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// Options configure [Open]. The zero value selects the whole model, without an adapter.
type Options struct {
	// Adapter is the folder or file of an adapter, see [dialects.OpenText]. If it has a classification head, the model is opened
	// as a classifier.
	Adapter  string
	Part     model.Part // of a model without such an adapter
	Quantize quant.Method
	// Quantizing, if not nil, is told how much of the weights is quantized, in bytes.
	Quantizing func(done, total int64)
	// Note, if not nil, receives notes for the user: unusual weight files, unread tensors, and
	// warnings about the adapter.
	Note func(text string)
}

// note reports texts that are not empty.
func (o Options) note(texts ...string) {
	for _, text := range texts {
		if text != "" && o.Note != nil {
			o.Note(text)
		}
	}
}

// Model is an open model with an adapter.
type Model struct {
	*model.Model
	Adapter *lora.Adapter // nil without one
	State   *lora.State   // of Adapter

	adapted bool // the model is that of another Model, which closes it
	options Options
}

// Open opens the model in a folder and the adapter of the options. It returns the
// errors of [OpenModel], [model.Model.Quantize] and [OpenAdapter].
func Open(dir string, o Options) (_ *Model, err error) {
	m := &Model{options: o}
	if m.Model, err = OpenModel(dir, o); err != nil {
		return nil, err
	}
	if err = m.Quantize(o.Quantize, o.Quantizing); err == nil {
		err = m.load(o.Adapter)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// OpenModel opens the part of the model in a folder that the adapter and the options select. It
// does not open the adapter.
func OpenModel(dir string, o Options) (m *model.Model, err error) {
	// Opening the adapter reports errors of its configuration.
	if c, unread := lora.ReadConfig(o.Adapter); o.Adapter != "" && unread == nil && c.IsClassifier() {
		m, err = classify.OpenModel(dir, o.Adapter)
	} else {
		m, err = model.OpenAs(dir, o.Part)
	}
	if err != nil {
		return nil, err
	}
	o.note(m.Source.Note(), m.UnreadLine())
	return m, nil
}

// OpenAdapter opens an adapter and places it in a model. It fails if the adapter does not fit the
// model or has no effect. It uses only Note of the options.
func OpenAdapter(dir string, m *model.Model, o Options) (*lora.Adapter, *lora.Placement, error) {
	a, err := dialects.OpenText(dir, m)
	if err != nil {
		return nil, nil, err
	}
	o.note(a.Source.Note())
	p, r, err := a.Place(lora.ModelOf(m.Config.ModelType, m.Modules()), m.Fresh(), lora.CheckOptions{})
	if err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	for _, w := range r.Warnings {
		o.note(fmt.Sprintf("adapter %s: %s", dir, w))
	}
	return a, p, nil
}

// Adapt returns the same model with another adapter, or with none if dir is empty. m must stay open
// until the result is closed.
func (m *Model) Adapt(dir string) (*Model, error) {
	x := &Model{Model: m.Model, adapted: true, options: m.options}
	return x, x.load(dir)
}

// load opens an adapter, unless dir is empty.
func (m *Model) load(dir string) error {
	if dir == "" {
		return nil
	}
	a, p, err := OpenAdapter(dir, m.Model, m.options)
	if err != nil {
		return err
	}
	if m.State, err = p.StateOf(a, m.Model); err != nil {
		return errors.Join(err, a.Close())
	}
	m.State.KeepTypes(a)
	m.Adapter = a
	return nil
}

// Tokenizer reads the tokenizer of the adapter or, if its folder has none, of the model.
func (m *Model) Tokenizer() (*tokenizer.Tokenizer, error) {
	dir := ""
	if m.Adapter != nil {
		dir = m.Adapter.Dir
	}
	return tokenizer.LoadAdapted(dir, m.Dir, m.Config.VocabSize)
}

// Close closes the adapter and, unless Adapt has returned m, the model.
func (m *Model) Close() error {
	var errs []error
	if m.Adapter != nil {
		errs = append(errs, m.Adapter.Close())
	}
	if !m.adapted {
		errs = append(errs, m.Model.Close())
	}
	return errors.Join(errs...)
}
