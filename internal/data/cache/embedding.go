package cache

import (
	"encoding/binary"
	"fmt"

	"github.com/lorafuse/lorafuse/tensor"
)

// Names of the tensors in an entry.
const (
	embedsName = "prompt_embeds"
	maskName   = "prompt_embeds_mask"
	pooledName = "pooled_prompt_embeds"
	latentName = "latent"
)

// Embedding is an encoded caption.
type Embedding struct {
	Embeds tensor.Tensor // [L, D] in F32, F16 or BF16
	Mask   []int64       // [L]: 1 for a token, 0 for padding
	// Pooled is the embedding of the whole caption [P], for models that use one. Its type is Invalid if there is none.
	Pooled tensor.Tensor
}

// tensors holds the tensors of an entry by name.
type tensors map[string]tensor.Tensor

// tensors checks the embedding and returns its tensors.
func (e Embedding) tensors() (tensors, error) {
	mask, err := tensor.New(tensor.I64, len(e.Mask))
	if err != nil {
		return nil, err
	}
	for i, m := range e.Mask {
		binary.LittleEndian.PutUint64(mask.Data[8*i:], uint64(m))
	}
	t := tensors{embedsName: e.Embeds, maskName: mask}
	if e.Pooled.DType != tensor.Invalid {
		t[pooledName] = e.Pooled
	}
	_, err = t.embedding()
	return t, err
}

// embedding is the inverse of Embedding.tensors.
func (t tensors) embedding() (Embedding, error) {
	if err := checkText(t.shapes()); err != nil {
		return Embedding{}, err
	}
	e := Embedding{Embeds: t[embedsName], Mask: make([]int64, t[maskName].Shape[0]), Pooled: t[pooledName]}
	for _, name := range []string{embedsName, pooledName} {
		if x, ok := t[name]; ok {
			if err := x.Check(); err != nil {
				return Embedding{}, fmt.Errorf("%s: %w: %w", name, ErrTensor, err)
			}
		}
	}
	for i := range e.Mask {
		m := int64(binary.LittleEndian.Uint64(t[maskName].Data[8*i:]))
		if m != 0 && m != 1 {
			return Embedding{}, fmt.Errorf("%s: element %d: found %d, expected 0 or 1: %w", maskName, i, m, ErrTensor)
		}
		e.Mask[i] = m
	}
	return e, nil
}

// latentTensors checks a latent and returns it under its name.
func latentTensors(latent tensor.Tensor) (tensors, error) {
	t := tensors{latentName: latent}
	_, err := t.latent()
	return t, err
}

// latent is the inverse of latentTensors.
func (t tensors) latent() (tensor.Tensor, error) {
	if err := checkLatent(t.shapes()); err != nil {
		return tensor.Tensor{}, err
	}
	latent := t[latentName]
	if err := latent.Check(); err != nil {
		return tensor.Tensor{}, fmt.Errorf("%s: %w: %w", latentName, ErrTensor, err)
	}
	return latent, nil
}

// shapes holds types and shapes of tensors without their data, as in the header of a file.
type shapes map[string]typed

type typed struct {
	dtype string // as in the file
	shape []int
}

func (t tensors) shapes() shapes {
	s := shapes{}
	for name, x := range t {
		s[name] = typed{x.DType.String(), x.Shape}
	}
	return s
}

func checkText(s shapes) error {
	embeds, err := s.float(embedsName)
	if err != nil {
		return err
	}
	if len(embeds.shape) != 2 {
		return fmt.Errorf("%s: found shape %v, expected [tokens, features]: %w", embedsName, embeds.shape, ErrTensor)
	}
	mask, ok := s[maskName]
	switch {
	case !ok:
		return fmt.Errorf("%s is missing: %w", maskName, ErrTensor)
	case mask.dtype != tensor.I64.String():
		return fmt.Errorf("%s: found %s, expected I64: %w", maskName, mask.dtype, ErrTensor)
	case len(mask.shape) != 1 || mask.shape[0] != embeds.shape[0]:
		return fmt.Errorf("%s: found shape %v, expected [%d] as %s has tokens: %w", maskName, mask.shape, embeds.shape[0], embedsName, ErrTensor)
	}
	if _, ok := s[pooledName]; !ok {
		return nil
	}
	pooled, err := s.float(pooledName)
	if err == nil && len(pooled.shape) != 1 {
		err = fmt.Errorf("%s: found shape %v, expected [features]: %w", pooledName, pooled.shape, ErrTensor)
	}
	return err
}

func checkLatent(s shapes) error {
	latent, err := s.float(latentName)
	if err != nil {
		return err
	}
	if len(latent.shape) < 3 {
		return fmt.Errorf("%s: found shape %v, expected [channels, …, height, width]: %w", latentName, latent.shape, ErrTensor)
	}
	return nil
}

// float returns a tensor that must have a float type.
func (s shapes) float(name string) (typed, error) {
	t, ok := s[name]
	if !ok {
		return t, fmt.Errorf("%s is missing: %w", name, ErrTensor)
	}
	switch t.dtype {
	case tensor.F32.String(), tensor.F16.String(), tensor.BF16.String():
		return t, nil
	}
	return t, fmt.Errorf("%s: found %s, expected F32, F16 or BF16: %w", name, t.dtype, ErrTensor)
}
