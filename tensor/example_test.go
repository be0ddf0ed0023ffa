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

func ExampleConvert() {
	// The four numbers 0.5, -1.5, 6 and 0, a byte each.
	packed := []byte{0x30, 0xbc, 0x4c, 0x00}
	half := make([]byte, 8)
	if err := tensor.Convert(half, tensor.BF16, packed, tensor.F8E4M3); err != nil {
		fmt.Println(err)
		return
	}
	values := make([]float32, 4)
	if err := tensor.ToFloat32(values, half, tensor.BF16); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(values)

	// What does not fit becomes the largest number that does.
	small := make([]byte, 1)
	if err := tensor.Convert(small, tensor.U8, []byte{0x2c, 0x01}, tensor.I16); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(small)
	// Output:
	// [0.5 -1.5 6 0]
	// [255]
}
