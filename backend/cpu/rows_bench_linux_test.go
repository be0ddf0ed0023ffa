package cpu_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/cputime"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// adapted compiles a layer of 64 rows with so many adapters, the gradients of
// which are results too where asked for.
func adapted(b *testing.B, dev backend.Device, adapters int, backward bool) *exec.Executable {
	const rows, in, out, rank = 64, 2048, 2048, 16
	g, s := graph.New(), ir.Static
	x, index := g.Param("x", tensor.F32, s(rows), s(in)), g.Param("index", tensor.I32, s(rows))
	w := g.Param("w", tensor.BF16, s(out), s(in))
	downs, ups := graph.RowsWeights{}, graph.RowsWeights{Scale: g.Param("scale", tensor.F32, s(adapters))}
	wrt := []graph.Tensor{x}
	for e := range adapters {
		downs.Matrices = append(downs.Matrices, g.Param(fmt.Sprintf("a%d", e), tensor.F32, s(rank), s(in)))
		ups.Matrices = append(ups.Matrices, g.Param(fmt.Sprintf("b%d", e), tensor.F32, s(out), s(rank)))
		wrt = append(wrt, downs.Matrices[e], ups.Matrices[e])
	}
	y := x.RowsGemm(index, downs, graph.Tensor{}).RowsGemm(index, ups, x.Linear(w, graph.Tensor{}))
	p := g.Program().Result("y", y)
	if backward {
		for i, d := range g.Gradients(y.Mul(g.Param("dy", tensor.F32, s(rows), s(out))).Sum(1).Sum(0), wrt, false) {
			p.Result(fmt.Sprintf("d%d", i), d)
		}
	}
	e, err := p.Compile(dev)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	for _, a := range e.Program().Args {
		buf, err := dev.Alloc(a.Type.Bytes([]int{0}))
		require.NoError(b, err)
		require.NoError(b, e.Bind(a.Name, buf))
		if a.Name == "index" { // every adapter's rows lie apart
			ids := make([]byte, 4*rows)
			for i := range rows {
				ids[4*i] = byte(i % adapters)
			}
			_, err = dev.Upload(buf, 0, ids)
			require.NoError(b, err)
		}
	}
	return e
}

// BenchmarkMixedRows prints the time of a layer on 64 rows with 16 adapters of rank
// 16 by that with one, the least of each, taken in turns: processor time of one worker.
func BenchmarkMixedRows(b *testing.B) {
	for _, backward := range []bool{false, true} {
		b.Run(fmt.Sprintf("backward %v", backward), func(b *testing.B) {
			dev, err := cpu.Open(backend.Options{Threads: 1})
			require.NoError(b, err)
			defer func() { require.NoError(b, dev.Close()) }()
			layers := [2]*exec.Executable{adapted(b, dev, 1, backward), adapted(b, dev, 16, backward)}
			least := cputime.Least(b, 2, nil, func(i int) { require.NoError(b, layers[i].RunWait(context.Background())) })
			b.ReportMetric(float64(least[1])/float64(least[0]), "ratio")
			b.ReportMetric(float64(least[0].Microseconds()), "one-µs")
		})
	}
}

// BenchmarkBatchInvariant prints the time of a layer of a transformer, whose queries see
// 512 keys, with that option by its time without: the least of each, taken in turns, in
// processor time of one worker.
func BenchmarkBatchInvariant(b *testing.B) {
	sizes := decoderSizes{rows: 512, heads: 16, size: 64, hidden: 2816}
	x := make([]float32, sizes.rows*sizes.width())
	for _, rows := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("%d rows", rows), func(b *testing.B) {
			var layers [2]*decoder
			for i := range layers {
				layers[i] = newDecoder(b, backend.Options{Threads: 1, BatchInvariant: i == 1}, sizes)
			}
			// The text sets what the layer reads.
			least := cputime.Least(b, 2, func(i int) { _ = layers[i].text(b, x, sizes.rows-rows, sizes.rows) },
				func(i int) { require.NoError(b, layers[i].RunWait(context.Background())) })
			b.ReportMetric(float64(least[1])/float64(least[0]), "price")
			b.ReportMetric(float64(least[0].Microseconds()), "usual-µs")
		})
	}
}
