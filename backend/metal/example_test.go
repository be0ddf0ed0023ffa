//go:build cgo && (darwin || (metal && metalfake))

package metal_test

import (
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/metal"
)

// Where there is no GPU, or one that fails its self-test, the error says so, and the CPU
// is there to compute on.
func ExampleOpen() {
	dev, err := metal.Open(backend.Options{})
	if err != nil {
		fmt.Println("a GPU, or a reason:", errors.Is(err, backend.ErrUnavailable))
		return
	}
	defer dev.Close()
	fmt.Println("a GPU, or a reason:", dev.Info().Name != "")
	// Output: a GPU, or a reason: true
}
