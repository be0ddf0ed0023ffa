//go:build cuda

package kernels_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/kernels"
)

// What a backend loads before it launches anything.
func ExampleImages() {
	probe := kernels.Images()["probe"]
	fmt.Printf("%x\n", probe[:4])
	// Output: 50ed55ba
}
