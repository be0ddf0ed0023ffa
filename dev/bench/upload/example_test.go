package upload_test

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/upload"
)

// On the CPU weights stay where they are mapped.
func ExampleRun() {
	report, err := upload.Run(context.Background(), upload.Options{Turns: bench.Turns{Runs: 1}, Backend: backend.CPU, Sizes: []string{"tiny"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, row := range report.Rows {
		fmt.Println(row.Program, row.Name)
	}
	// Output: lorafuse as models are loaded
}
