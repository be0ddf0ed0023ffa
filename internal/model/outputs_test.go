package model

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// bag is an architecture that is no decoder: words and their types are added up,
// and a text is one vector. It has no head, and modules by the given names.
type bag struct{ modules []string }

func (bag) Check(*Config) error { return nil }

func (f bag) Build(c *Config, b *nn.Builder) Outputs {
	n := b.Axis("words")
	x := b.Embedding(nn.Vocabulary, "words", b.Input("words", tensor.I32, n), c.VocabSize, c.HiddenSize, -1)
	x = x.Add(b.Embedding(nn.Attributes, "types", b.Input("types", tensor.I32, n), 2, c.HiddenSize, -1))
	for _, name := range f.modules {
		x = b.Linear(name, x, c.HiddenSize, false)
	}
	pooled := x.Sum(0)
	var out Outputs
	out.Named = map[string]graph.Tensor{"pooled": pooled}
	out.loss("size", func() graph.Tensor { return pooled.SumSquares() })
	return out
}

func openBag(t *testing.T, modules ...string) (*Model, error) {
	registry["Bag"] = Architecture{ModelType: "bag", Read: func(*Config, *Fields) Family { return bag{modules} }}
	t.Cleanup(func() { delete(registry, "Bag") })
	dir := t.TempDir()
	raw, err := json.Marshal(map[string]any{"architectures": []string{"Bag"}, "hidden_size": 2, "num_hidden_layers": 1, "vocab_size": 3})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o666))
	var entries []safetensors.Entry
	add := func(name string, rows int) {
		entries = append(entries, safetensors.Entry{Name: name + ".weight", DType: safetensors.F32, Shape: []int{rows, 2},
			Data: tensor.BytesOf(make([]float32, 2*rows))})
	}
	add("words", 3)
	add("types", 2)
	for _, name := range modules {
		add(name, 2)
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), entries, nil))
	return Open(dir)
}

// TestModelWithoutAHead: a model says what it gives, and is opened without logits.
func TestModelWithoutAHead(t *testing.T) {
	m, err := openBag(t, "dense")
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, []string{"words.weight", "types.weight", "dense.weight"}, m.Used())
	var vocabularies []string
	for _, x := range m.Modules() {
		if x.InputEmbedding {
			vocabularies = append(vocabularies, x.Name)
		}
	}
	require.Equal(t, []string{"words"}, vocabularies, "the table of types is not one")

	build := func() (*nn.Builder, Outputs) {
		b := nn.NewBuilder(graph.New(), m, nn.Options{Bounds: map[string]int{"words": 7}})
		return b, m.Build(b)
	}
	b, out := build()
	require.Equal(t, ir.ShapeOf(2), out.Output(b, "pooled").Type().Shape)
	require.Empty(t, out.Loss(b, "size").Type().Shape)
	require.NoError(t, b.G.Err())
	for says, ask := range map[string]func(*nn.Builder, Outputs){
		"a language head":                      func(b *nn.Builder, o Outputs) { o.Logits(b, graph.Tensor{}) },
		`the task "next token"; it has "size"`: func(b *nn.Builder, o Outputs) { o.Loss(b, NextToken) },
		`an output "pool"; it has "pooled"`:    func(b *nn.Builder, o Outputs) { o.Output(b, "pool") },
	} {
		b, out := build()
		ask(b, out)
		require.ErrorIs(t, b.G.Err(), ErrTask)
		require.ErrorContains(t, b.G.Err(), says)
	}
}

// TestSharedStreamIsRefused: dropout of these two modules would draw the same masks.
func TestSharedStreamIsRefused(t *testing.T) {
	_, err := openBag(t, "costarring", "liquid")
	require.ErrorIs(t, err, nn.ErrStream)
	require.ErrorContains(t, err, `modules "costarring" and "liquid"`)
}
