package layer_test

import (
	"context"
	"fmt"
	"regexp"

	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/layer"
)

// One row of the suite, an eighth of the size.
func ExampleRun() {
	report, err := layer.Run(context.Background(), layer.Options{
		Turns: bench.Turns{Runs: 1, Only: regexp.MustCompile("frozen")}, Shrink: 8, Threads: 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, row := range report.Rows {
		fmt.Println(row.ID())
	}
	// Output:
	// Forward and backward, f32 × bf16 weights: lorafuse: frozen layer alone, m=256 k=256 n=256
	// Forward and backward, bf16: lorafuse: frozen layer alone, m=256 k=256 n=256
}
