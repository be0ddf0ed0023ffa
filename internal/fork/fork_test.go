package fork_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/internal/fork"
)

func TestPanicComesHome(t *testing.T) {
	why := errors.New("why")
	var g fork.Group
	var others atomic.Int32
	for i := range 8 {
		g.Go(func() {
			if i == 3 {
				panic(why)
			}
			others.Add(1)
		})
	}
	assert.PanicsWithValue(t, why, g.Wait)
	assert.EqualValues(t, 7, others.Load())
}

func Example() {
	var g fork.Group
	squares := make([]int, 4)
	for i := range squares {
		g.Go(func() { squares[i] = i * i })
	}
	g.Wait()
	fmt.Println(squares)
	// Output: [0 1 4 9]
}
