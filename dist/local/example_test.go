package local_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
)

// Three ranks of this process tell each other their names.
func ExampleNew() {
	var wg sync.WaitGroup
	for _, w := range local.New(3) {
		wg.Go(func() {
			names, err := dist.Gather(context.Background(), w, fmt.Appendf(nil, "rank %d", w.Rank()))
			if w.Rank() == 1 {
				fmt.Printf("%q %v\n", names, err)
			}
		})
	}
	wg.Wait()
	// Output: ["rank 0" "rank 1" "rank 2"] <nil>
}
