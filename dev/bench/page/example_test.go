package page_test

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/page"
)

// Results that nothing was measured twice of are a page as well.
func ExampleMarkdown() {
	reports, err := bench.ReadResults(strings.NewReader(`{"title": "load", "environment": {"time": "2026-11-24T00:00:00Z", "cpu": "abacus", "cores": 2, "threads": 2}, "rows": [
		{"group": "Header", "program": "lorafuse", "name": "FromBytes", "input": "1,000 tensors", "seconds": [0.00022]},
		{"group": "Header", "program": "rust", "name": "SafeTensors::deserialize", "input": "1,000 tensors", "seconds": [0.00066]}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, files, _ := strings.Cut(page.Markdown([]page.Result{{File: "files.json", Report: reports[0]}}), "## Files\n")
	_, table, _ := strings.Cut(files, "\n\n")
	fmt.Print(table)
	// Output:
	// | what | on | threads | abacus, 2 cores |
	// |---|---|---|---|
	// | header, FromBytes | 1,000 tensors | 2 | 0.22 ms; 3.00× Rust [1] |
	//
	// ## Sources
	//
	// 1. 2026-11-24, abacus, 2 cores (files.json).
}
