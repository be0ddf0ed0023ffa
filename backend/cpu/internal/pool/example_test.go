package pool_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

func ExamplePool_Run() {
	p := pool.New(2)
	defer p.Close()
	squares := make([]int, 5)
	p.Run(len(squares), func(i int) { squares[i] = i * i })
	fmt.Println(squares)
	// Output: [0 1 4 9 16]
}
