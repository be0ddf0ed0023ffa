package bench_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// A row keeps its samples; the figures follow from them.
func Example() {
	r := bench.Row{Group: "Read", Program: "cat", Name: "read(2)", Input: "model", Bytes: 2e9, Seconds: []float64{0.5, 0.4, 0.9}}
	f := r.Figures()
	fmt.Printf("%s: %g s, %g GB/s\n", r.ID(), f.Median, f.Rate)
	// Output: Read: cat: read(2), model: 0.5 s, 4 GB/s
}
