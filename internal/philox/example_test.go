package philox_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/philox"
)

func ExampleMask() {
	m := philox.NewMask(42, 100, 7, 0.25) // seed, step, op, p
	for i := range uint64(8) {
		fmt.Print(m.Keep(i), " ")
	}
	// Output: false true true true true false true true
}

func ExamplePermutation() {
	order := philox.NewPermutation(6, 42, 0) // n, seed, epoch
	for cursor := range order.Len() {
		fmt.Print(order.At(cursor), " ")
	}
	// Output: 5 4 2 0 1 3
}
