package lora_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
)

// counted counts the weights that are read.
type counted struct {
	nn.Weights
	reads int
}

func (c *counted) Weight(name string) (nn.Weight, error) {
	c.reads++
	return c.Weights.Weight(name)
}

// TestInjectionOnce: the base weights that a method needs are read once, however many slots and
// steps of training an adapter has.
func TestInjectionOnce(t *testing.T) {
	m := openModel(t, "../testdata/peft/base/small-llama")
	w := &counted{Weights: m}
	s, err := lora.LoadState("../testdata/peft/dora-rslora/adapter", w, m.Config.ModelType, m.Modules())
	require.NoError(t, err)
	first, err := s.Injection()
	require.NoError(t, err)
	require.Positive(t, w.reads)
	reads := w.reads
	other, err := s.WithValues(s.Values)
	require.NoError(t, err)
	for _, x := range []*lora.State{s, other} {
		again, err := x.Injection()
		require.NoError(t, err)
		require.True(t, first == again)
	}
	require.Equal(t, reads, w.reads)
}
