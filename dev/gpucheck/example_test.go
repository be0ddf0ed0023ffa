package gpucheck_test

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/dev/gpucheck"
)

// A report says what is asked before anything was measured.
func ExampleReport_Markdown() {
	r := &gpucheck.Report{Title: "GPU", Steps: []gpucheck.Result{{Name: "device", What: "the driver", Status: gpucheck.Skipped, Reason: "no CUDA driver"}}}
	for line := range strings.Lines(r.Markdown()) {
		if strings.HasPrefix(line, "|  | device") || strings.Contains(line, "skipped,") {
			fmt.Print(line)
		}
	}
	// Output:
	// 0 passed, 0 failed, 1 skipped, 0 not run.
	// |  | device | skipped | 0.0 | the driver | no CUDA driver |
}
