package backend_test

import (
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
)

// Opening a backend that a build does not have says so.
func ExampleOpen() {
	_, err := backend.Open("tpu", backend.Options{})
	fmt.Println(errors.Is(err, backend.ErrUnavailable))
	// Output: true
}
