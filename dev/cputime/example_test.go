//go:build linux

package cputime_test

import (
	"fmt"
	"testing"

	"github.com/lorafuse/lorafuse/dev/cputime"
)

func Example() {
	short, long := 0, 0
	testing.Benchmark(func(b *testing.B) {
		least := cputime.Least(b, 2, nil, func(i int) {
			for range 1000 * (1 + 99*i) {
				short += i
			}
		})
		long = int(least[1] / max(1, least[0]))
	})
	fmt.Println(long > 2)
	// Output: true
}
