package kernels_test

import (
	"context"
	"fmt"
	"regexp"

	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/kernels"
)

// Some rows of the suite, an eighth of the size.
func ExampleRun() {
	report, err := kernels.Run(context.Background(), kernels.Options{
		Turns: bench.Turns{Runs: 1, Only: regexp.MustCompile("dy·W.*m=64 k=704 n=256")}, Shrink: 8, Threads: 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, row := range report.Rows {
		fmt.Printf("%s: %.0f operations\n", row.ID(), row.Flops)
	}
	// Output:
	// dy·W: lorafuse: f32, m=64 k=704 n=256: 23068672 operations
	// dy·W: lorafuse: f32 × bf16 weights, m=64 k=704 n=256: 23068672 operations
	// dy·W: lorafuse: bf16, m=64 k=704 n=256: 23068672 operations
	// dy·W: lorafuse: f32 × int8 weights, m=64 k=704 n=256: 23068672 operations
	// dy·W: lorafuse: f32 × nf4 weights, m=64 k=704 n=256: 23068672 operations
}
