package share_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/share"
)

// Training that would go on for ever has half of the time while something is served, and
// all of it before and after.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	g := share.New(0.5)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			over := g.Launch(ctx)
			time.Sleep(time.Millisecond) // computes a layer
			over()
		}
	}()
	time.Sleep(10 * time.Millisecond)
	for range 10 {
		g.Begin()
		time.Sleep(10 * time.Millisecond) // makes a token
		g.End(ctx)
	}
	g.Idle()
	cancel()
	<-ended
	used := g.Used()
	fmt.Println(used.Steps, used.Slices > 0, used.Idle > 0)
	// Output: 10 true true
}
