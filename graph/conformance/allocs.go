package conformance

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
)

// RunAllocs requires that running a compiled program allocates nothing, for
// every row of the table together with its gradients: a step of training or of
// decoding then leaves no garbage. Devices that enqueue in Go memory need not
// promise it.
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

// allocs is the number of allocations of one run. One that the runtime makes
// for itself now and then is averaged away.
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
