package conformance

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// testCompany checks dropout of rows of several runs in one value. Each row is dropped as in a run of its own, whatever
// its position and the rows next to it.
func testCompany(t *testing.T, dev backend.Device) {
	const cols = 67
	// In order, reversed and mixed, as (run, row) pairs.
	type row struct{ run, number int }
	var rows []row
	for n := range 5 {
		rows = append(rows, row{n % 3, n}, row{(n + 1) % 3, 9 - n}, row{2, 100 + n})
	}
	keys := [][]uint32{{7, 9, 1}, {7, 9, 2}, {1 << 31, 9, 1}}
	alone := make([][]float32, len(keys))
	for run, key := range keys {
		alone[run] = dropOnes(t, dev, 110, cols, key, ir.RandomKey)
	}
	require.NotEqual(t, alone[0], alone[1])
	for range 2 {
		var words []uint32
		var want []float32
		for _, r := range rows {
			words = append(append(words, keys[r.run]...), uint32(r.number))
			want = append(want, alone[r.run][r.number*cols:(r.number+1)*cols]...)
		}
		require.Equal(t, want, dropOnes(t, dev, len(rows), cols, words, ir.RowKeys(ir.Static(len(rows)))))
		slices.Reverse(rows)
	}
}

// dropOnes drops half of a value of ones, with Dropout and in the gradient of the input of LoRADown, and requires both
// to be the same.
func dropOnes(t *testing.T, dev backend.Device, rows, cols int, words []uint32, key ir.Type) []float32 {
	t.Helper()
	g := ir.New()
	k := g.Param("key", key)
	x := g.Param("x", ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(rows, cols)})
	one := g.Const(1, ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(1, cols)})
	column := g.Slice(x, 1, 0, 1)
	attr := ir.DropoutAttr{P: 0.5, Stream: 3}
	spec := exec.Spec{Results: []exec.Result{
		{Name: "dropped", Value: g.Dropout(x, k, attr)},
		{Name: "gradient", Value: g.Apply(ir.LoRADownInputGrad, attr, column, one, k)},
	}}
	e, err := exec.Compile(g, spec, dev)
	require.NoError(t, err)
	defer e.Close()
	results := map[string]backend.Buffer{}
	for _, a := range e.Program().Args {
		b := alloc(t, dev, a.Type.Bytes(nil))
		require.NoError(t, e.Bind(a.Name, b))
		switch a.Name {
		case "key":
			require.NoError(t, wait(dev.Upload(b, 0, tensor.BytesOf(words))))
		case "x":
			require.NoError(t, wait(dev.Upload(b, 0, tensor.BytesOf(slices.Repeat([]float32{1}, rows*cols)))))
		default:
			results[a.Name] = b
		}
	}
	require.NoError(t, e.RunWait(context.Background()))
	dropped, gradient := make([]float32, rows*cols), make([]float32, rows*cols)
	download(t, dev, tensor.BytesOf(dropped), results["dropped"])
	download(t, dev, tensor.BytesOf(gradient), results["gradient"])
	require.Equal(t, dropped, gradient)
	return dropped
}
