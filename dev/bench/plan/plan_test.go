package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/tensor"
)

// scores is a program of a product and a softmax, of a number of rows that depends on the run.
func scores(rows int) Program {
	return Program{Name: "scores", Dims: map[string]int{"rows": rows}, Plan: func(dev backend.Device) (*ir.Program, error) {
		g := graph.New()
		n := g.Bound("rows", 4096)
		x, w := g.Param("x", tensor.F32, n, ir.Static(4096)), g.Param("w", tensor.BF16, ir.ShapeOf(4096, 4096)...)
		keys := g.Param("keys", tensor.U32, ir.RowKeys(n).Shape...)
		p := g.Program().Result("softmax", x.MatMulT(w).Softmax())
		if rows == 1 {
			p.Result("dropped", g.Of(g.IR().Dropout(x.MatMulT(w).Value(), keys.Value(), ir.DropoutAttr{P: 0.5})))
		}
		return p.Plan(dev.Supports)
	}}
}

func TestCost(t *testing.T) {
	cuda := Devices()[0]
	const rows, n = 2048, 4096
	c, err := cuda.Count(scores(rows))
	require.NoError(t, err)
	product, softmax := 4*rows*n+2*n*n+4*rows*n, 2*4*rows*n
	written := 2 * 4 * rows * n
	assert.Equal(t, 3, c.Launches, "only kernels for this number of rows run: x is rounded, multiplied, and the softmax")
	assert.Equal(t, product+softmax-written, c.Read)
	assert.Equal(t, written, c.Written)
	assert.Equal(t, 4*4096*n, c.Arena, "of the largest number of rows")
	assert.Empty(t, c.Decomposed)
	require.Len(t, c.Derived, 2)
	assert.Equal(t, "H100", c.Derived[0].Card)
	assert.InEpsilon(t, 2.0*rows*n*n/798e12+float64(softmax)/3.0e12, c.Derived[0].Seconds, 1e-9, "the product takes the time of its operations, softmax of its bytes")

	c, err = cuda.Count(scores(1))
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"Dropout": 1}, c.Decomposed)
	_, err = cuda.Count(scores(5000))
	require.ErrorIs(t, err, ErrUnknown)
	assert.ErrorContains(t, err, `, scores: not planned: axis "rows" of size 5000, expected 1 to 4096`)
	bad := scores(1)
	bad.Dims = map[string]int{"row": 1}
	_, err = cuda.Count(bad)
	assert.ErrorContains(t, err, `, scores: not planned: axis "row", expected rows`)
}

func TestTable(t *testing.T) {
	costs := []Cost{{Program: "a", Device: "d", Launches: 1234567, Read: 2e9, Written: 5e8, Derived: []Time{{"x", 1.23456e-5}, {"y", 12.3456}}, Decomposed: map[string]int{"TopK": 2, "GLU": 1}}}
	assert.Equal(t, []string{"a", "d", "1,234,567", "2.500", "2.000", "0.500", "0.000", "0.000", "x 0.0123 ms, y 12346 ms", "GLU 1, TopK 2"}, Table(costs)[1])
}

func TestModels(t *testing.T) {
	shape, err := checkpoint.ByName("tiny")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, shape.WriteEmpty(dir))
	m, err := model.Open(dir)
	require.NoError(t, err)
	defer m.Close()
	programs, err := List(m, Options{Tokens: 64, Context: 100, Rank: 4})
	require.NoError(t, err)
	require.Len(t, programs, 12)
	for _, p := range programs {
		for _, d := range Devices() {
			c, err := d.Count(p)
			require.NoError(t, err)
			assert.Positive(t, c.Launches, p.Name)
			assert.Positive(t, c.Read, p.Name)
			assert.Positive(t, c.Written, p.Name)
		}
	}
	_, err = List(m, Options{Tokens: 64, Context: 0, Rank: 4})
	assert.EqualError(t, err, "plan: context: found 0, expected 1 to 1048576")

	encoder, err := model.Open("../../../testdata/encoders/bert")
	require.NoError(t, err)
	defer encoder.Close()
	_, err = List(encoder, Options{Tokens: 64, Context: 100, Rank: 4})
	require.ErrorIs(t, err, ErrUnknown)
	assert.ErrorContains(t, err, `is of type "bert", expected a text generator, a diffusion transformer or an autoencoder`)
}
