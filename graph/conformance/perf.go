package conformance

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph/exec"
)

// RunBenchmarks runs the benchmark cases and reports floating-point operations and bytes per second.
func RunBenchmarks(b *testing.B, open Open) {
	dev := opened(b, open)
	for _, c := range cases() {
		if !c.bench {
			continue
		}
		b.Run(c.String(), func(b *testing.B) {
			s := c.set(b)
			var spec exec.Spec
			for i, v := range s.outs {
				spec.Results = append(spec.Results, exec.Result{Name: fmt.Sprintf("out%d", i), Value: v})
			}
			e, err := exec.Compile(s.g, spec, dev)
			require.NoError(b, err)
			defer func() { require.NoError(b, e.Close()) }()
			defer free(s.bind(b, dev, e))
			bytes := 0
			for i := range e.Program().Launches {
				_, n := e.Program().Launches[i].Cost(s.dims)
				bytes += n
			}
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, e.RunWait(context.Background()))
			}
			b.ReportMetric(float64(e.Flops())*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
