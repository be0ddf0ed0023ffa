package step_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/step"
)

// Options are checked before anything is made.
func ExampleRun() {
	_, err := step.Run(context.Background(), step.Options{Turns: bench.Turns{Runs: 3}, Sizes: []string{"medium"}, Rank: 16, Steps: 10})
	fmt.Println(errors.Is(err, bench.ErrOptions))
	// Output: true
}
