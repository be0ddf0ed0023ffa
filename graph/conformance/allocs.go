package conformance

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
)

// RunAllocs requires that running a compiled program allocates nothing, for every case and its gradients: a training or
// decoding step then produces no garbage. Devices that enqueue in Go memory are exempt.
func RunAllocs(t *testing.T, open Open) {
	dev := opened(t, open)
	eachCase(t, func(t *testing.T, c *testCase) {
		s := c.set(t)
		var spec exec.Spec
		for i, v := range append(s.outs, s.gradients(t)...) {
			spec.Results = append(spec.Results, exec.Result{Name: fmt.Sprintf("out%d", i), Value: v})
		}
		e, err := exec.Compile(s.g, spec, dev)
		require.NoError(t, err)
		defer func() { require.NoError(t, e.Close()) }()
		defer free(s.bind(t, dev, e))
		require.Zero(t, allocs(t, e))
	})
}

// allocs returns the average number of allocations of a run. Rare allocations by the runtime itself are averaged away.
func allocs(t testing.TB, e *exec.Executable) float64 {
	var err error
	var f backend.Fence
	ctx := context.Background()
	n := testing.AllocsPerRun(20, func() {
		if f, err = e.Run(ctx); err == nil {
			err = f.Wait(ctx)
		}
	})
	require.NoError(t, err)
	return n
}
