package tensor_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/tensor"
)

func Example() {
	weights, err := tensor.FromFloat32s([]float32{0.5, -2, 3, 1001}, 2, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	half, err := weights.Convert(tensor.BF16)
	if err != nil {
		fmt.Println(err)
		return
	}
	values, err := half.Float32s()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(half.DType, half.Shape, len(half.Data), "bytes:", values)
	// Output: BF16 [2 2] 8 bytes: [0.5 -2 3 1000]
}

func ExampleView() {
	t, err := tensor.New(tensor.I32, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tensor.View[int32](t)
	if err != nil {
		fmt.Println(err)
		return
	}
	ids[1] = 258
	fmt.Println(t.Data)

	_, err = tensor.View[float32](t)
	fmt.Println(err)
	// Output:
	// [0 0 0 0 2 1 0 0 0 0 0 0]
	// tensor: I32 viewed as float32: wrong element type
}
