package lora

import (
	"fmt"
	"slices"
)

// Weights holds the tensors of one target in host memory by their roles, in the layout of an adapter
// file. Tensors that the target does not have are absent.
type Weights map[Role][]float32

// NewWeights returns weights of the sizes of t, all zero.
func (t Target) NewWeights() Weights {
	w := Weights{}
	for _, s := range t.Tensors() {
		w[s.Role] = make([]float32, elements(s.Shape))
	}
	return w
}

// elements returns the number of elements of a tensor.
func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func (w Weights) clone() Weights {
	c := Weights{}
	for r, x := range w {
		c[r] = slices.Clone(x)
	}
	return c
}

// Tensors returns the tensors of t with their keys, as F32 for [Save]. On little-endian
// machines it does not copy them.
func (w Weights) Tensors(t Target) ([]Tensor, error) {
	if err := t.checkSizes(nil, w); err != nil {
		return nil, err
	}
	var out []Tensor
	for _, s := range t.Tensors() {
		v, err := float32Tensor(w[s.Role], s.Shape...)
		if err != nil {
			return nil, fmt.Errorf("lora: tensor %q: %w", s.Key, err)
		}
		out = append(out, Tensor{s.Key, v})
	}
	return out, nil
}

// Weights returns copies of the tensors of a target as float32.
func (a *Adapter) Weights(t Target) (Weights, error) {
	w := Weights{}
	for _, s := range t.Tensors() {
		found, ok := a.tensors[s.Key]
		if ok && !slices.Equal(found.Shape, s.Shape) {
			return nil, fmt.Errorf("lora: %stensor %q: %w: %v, expected %v", a.where(), s.Key, ErrShape, found.Shape, s.Shape)
		}
		v, err := a.Float32s(s.Key)
		if err != nil {
			return nil, err
		}
		w[s.Role] = v
	}
	return w, nil
}

// checkSizes compares lengths; a nil weight is not looked at.
func (t Target) checkSizes(weight []float32, w Weights) error {
	wrong := func(what string, found, want int) error {
		return fmt.Errorf("lora: %q: %s has %d elements, expected %d: %w", t.Name, what, found, want, ErrShape)
	}
	if n := t.matrices() * t.In * t.Out; weight != nil && len(weight) != n {
		return wrong("the weight", len(weight), n)
	}
	for _, s := range t.Tensors() {
		if n := elements(s.Shape); len(w[s.Role]) != n {
			return wrong(string(s.Role), len(w[s.Role]), n)
		}
	}
	return nil
}
