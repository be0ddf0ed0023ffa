package dist_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
)

// Two ranks add three gradients: rank 0 has computed the first and the third.
func ExampleSum() {
	gradients := [][]float32{{1, 2, 3}, {10, 20, 30}, {100, 200, 300}}
	var wg sync.WaitGroup
	sums := make([][]float32, 2)
	for rank, w := range local.New(2) {
		wg.Go(func() {
			ctx, sum := context.Background(), dist.NewSum(w, 3)
			err := sum.Add(ctx, gradients[rank], 2)
			if err == nil && rank == 0 {
				err = sum.Add(ctx, gradients[2], 1)
			} else if err == nil {
				err = sum.Add(ctx, nil, 1)
			}
			sums[rank] = make([]float32, 3)
			if err == nil {
				err = sum.Gather(ctx, sums[rank])
			}
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	wg.Wait()
	fmt.Println(sums[0], sums[1])
	// Output: [111 222 333] [111 222 333]
}
