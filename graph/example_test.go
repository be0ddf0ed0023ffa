package graph_test

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// A formula is built first; nothing runs before Eval. Gradients are tensors of the same graph.
func Example() {
	g := graph.New()
	x := g.Param("x", tensor.F32, ir.Static(3))
	loss := x.Mul(x).Scale(0.5).Sum(0)
	grad := g.Gradients(loss, []graph.Tensor{x}, false)[0]

	dev, err := cpu.Open(backend.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	numbers, err := tensor.FromFloat32s([]float32{1, -2, 3}, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := graph.Eval(context.Background(), dev, []graph.Tensor{loss, grad}, map[string]*tensor.Tensor{"x": &numbers}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range out {
		values, _ := t.Float32s()
		fmt.Println(t.Shape, values)
	}
	// Output:
	// [] [7]
	// [3] [1 -2 3]
}

// An error does not stop the construction of a formula; compiling reports the first one, with the line that caused it.
func ExampleGraph_Err() {
	g := graph.New()
	x := g.Param("x", tensor.F32, ir.Static(2), ir.Static(3))
	w := g.Param("w", tensor.F32, ir.Static(5), ir.Static(4))
	y := x.Linear(w, graph.Tensor{}).Softmax()
	fmt.Println(y.Valid())
	fmt.Println(g.Err())
	// Output:
	// false
	// example_test.go:51: graph: linear: inner sizes 3 and 4 differ: x [2,3] · w [5,4]ᵀ; x must end in 4, or w have inner size 3
}

// A param that the program updates holds state from run to run, here a counter that is updated in place.
func ExampleGraph_Program() {
	g := graph.New()
	count := g.Param("count", tensor.F32, ir.Static(1))
	plan, err := g.Program().Update("count", count.AddScalar(1)).Plan(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(plan)
	// Output:
	// arg 0 count f32[1] written
	// arena 64
	// @0:f32[] = Const{1}
	// $0:f32[1] = Binary{Add} $0:f32[1], @0:f32[]
}

// Rows of a batch have adapters of several ranks, or none. The index of a row selects A, B and scale in x Wᵀ + scale·(x
// Aᵀ) Bᵀ.
func ExampleTensor_RowsGemm() {
	g, s := graph.New(), ir.Static
	n := g.Bound("rows", 4)
	x, index := g.Param("x", tensor.F32, n, s(2)), g.Param("index", tensor.I32, n)
	w := g.Param("w", tensor.F32, s(1), s(2))
	downs := graph.RowsWeights{Matrices: []graph.Tensor{g.Param("a0", tensor.F32, s(1), s(2)), g.Param("a1", tensor.F32, s(2), s(2))}}
	ups := graph.RowsWeights{
		Matrices: []graph.Tensor{g.Param("b0", tensor.F32, s(1), s(1)), g.Param("b1", tensor.F32, s(1), s(2))},
		Scale:    g.Param("scale", tensor.F32, s(2)),
	}
	h := x.RowsGemm(index, downs, graph.Tensor{})
	y := h.RowsGemm(index, ups, x.Linear(w, graph.Tensor{}))

	dev, err := cpu.Open(backend.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	args := map[string]*tensor.Tensor{"index": {DType: tensor.I32, Shape: []int{3}, Data: []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}}}
	for name, values := range map[string][]float32{
		"x": {1, 2, 1, 2, 1, 2}, "w": {10, 0}, "a0": {1, 1}, "a1": {1, 0, 0, 1}, "b0": {1}, "b1": {1, 1}, "scale": {2, 0.5},
	} {
		t, err := tensor.FromFloat32s(values, len(values))
		if err != nil {
			fmt.Println(err)
			return
		}
		args[name] = &t
	}
	out, err := graph.Eval(context.Background(), dev, []graph.Tensor{y}, args, map[string]int{"rows": 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	values, _ := out[0].Float32s()
	fmt.Println(values)
	// Output:
	// [11.5 10 16]
}
