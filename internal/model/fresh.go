package model

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// Fresh returns the sorted names of newly initialized weights: weights of a head that the
// checkpoint does not have.
func (m *Model) Fresh() []string { return slices.Sorted(maps.Keys(m.fresh)) }

// initialize initializes the weights of layers that the checkpoint does not have.
func (m *Model) initialize(layers []headLayer, seed uint64) error {
	m.fresh = map[string]nn.Weight{}
	for _, l := range layers {
		weight, bias := l.Name+".weight", l.Name+".bias"
		if !m.set.Has(m.inFile(weight)) {
			values, shape := normal(weight, l.Out*l.In, seed, cmp.Or(l.Deviation, m.Config.Deviation)), []int{l.Out, l.In}
			if l.Kind == nn.KindNorm {
				values, shape = slices.Repeat([]float32{1}, l.Out), []int{l.Out}
			}
			if err := m.add(weight, values, shape...); err != nil {
				return err
			}
		}
		if l.Bias && !m.set.Has(m.inFile(bias)) {
			if err := m.add(bias, make([]float32, l.Out), l.Out); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Model) add(name string, values []float32, shape ...int) error {
	t, err := tensor.FromFloat32s(values, shape...)
	m.fresh[name] = nn.Weight{DType: t.DType, Shape: t.Shape, Source: weights.Data{Bytes: t.Data}}
	return err
}

// normal returns n normally distributed numbers that depend on the seed and the name of their
// tensor.
func normal(name string, n int, seed uint64, deviation float64) []float32 {
	h := fnv.New64a()
	h.Write([]byte(name))
	stream := philox.NewStream(seed, uint32(h.Sum64()>>32), uint32(h.Sum64()))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(deviation * stream.Normal(uint64(i)))
	}
	return x
}
