package decode_test

import (
	"context"
	"fmt"
	"regexp"

	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/decode"
)

// Reading a prompt with the smallest of the models.
func ExampleRun() {
	report, err := decode.Run(context.Background(), decode.Options{
		Turns: bench.Turns{Runs: 1, Only: regexp.MustCompile("prompt: lorafuse: merged")}, Threads: 1,
		Sizes: []string{"tiny"}, Contexts: []int{8}, Tokens: 4, Prompt: 32, Rank: 4,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, row := range report.Rows {
		fmt.Println(row.Program, row.Name)
	}
	// Output:
	// lorafuse merged, f32
	// lorafuse merged, bf16
}
