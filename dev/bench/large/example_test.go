package large_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/large"
)

// Options are checked before anything is made.
func ExampleRun() {
	_, err := large.Run(context.Background(), large.Options{Size: "enormous"})
	fmt.Println(errors.Is(err, bench.ErrOptions))
	// Output: true
}
