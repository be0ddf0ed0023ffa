//go:build cuda && linux

package cuda_test

import (
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
)

// Where there is no GPU, the error says where a driver was looked for, and the
// CPU is there to compute on.
func ExampleOpen() {
	dev, err := cuda.Open(backend.Options{})
	if err != nil {
		fmt.Println("a GPU, or a reason:", errors.Is(err, backend.ErrUnavailable))
		return
	}
	defer dev.Close()
	fmt.Println("a GPU, or a reason:", !dev.Info().Unified)
	// Output: a GPU, or a reason: true
}
