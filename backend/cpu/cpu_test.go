package cpu_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

func TestOpen(t *testing.T) {
	for _, threads := range []int{0, 1, 5} {
		dev, err := cpu.Open(backend.Options{Threads: threads})
		require.NoError(t, err)
		want := threads
		if threads == 0 {
			want = runtime.GOMAXPROCS(0)
		}
		assert.Contains(t, dev.Info().Detail, fmt.Sprintf("%d threads", want))
		require.NoError(t, dev.Close())
		require.NoError(t, dev.Close(), "closing twice does nothing")
	}
	_, err := cpu.Open(backend.Options{Index: 1})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	_, err = cpu.Open(backend.Options{Threads: -1})
	require.ErrorContains(t, err, "-1 threads")
	t.Setenv("LORAFUSE_CPU", "z80")
	_, err = cpu.Open(backend.Options{})
	require.ErrorContains(t, err, "LORAFUSE_CPU=z80")
	dev, err := backend.Open(backend.CPU, backend.Options{})
	require.Error(t, err)
	require.Nil(t, dev)
}

// TestFirstRun: what a run takes is made when the program is compiled, for the
// largest sizes, so that not even the first run of a size allocates.
func TestFirstRun(t *testing.T) {
	dev, err := cpu.Open(backend.Options{Threads: 2})
	require.NoError(t, err)
	defer dev.Close()
	g := graph.New()
	n, static := g.Bound("n", 600), ir.Static
	x, ids := g.Param("x", tensor.F32, n, static(256)), g.Param("ids", tensor.I32, n)
	w, a := g.Param("w", tensor.BF16, static(256), static(256)), g.Param("a", tensor.F32, static(8), static(256))
	key := g.Of(g.IR().Param("key", ir.RandomKey))
	y := x.LoRA(w, graph.Tensor{}, x.LoRADown(a, key, ir.DropoutAttr{P: 0.5}), g.Param("b", tensor.F32, static(256), static(8)), 2)
	hi := g.Param("hi", tensor.I32, n)
	y = y.Attention(y, y, ids, hi, ir.AttentionAttr{Heads: 8, KVHeads: 8, HeadDim: 32, Scale: 1})
	z := x.Linear(w, graph.Tensor{}).Add(x.Linear(g.Param("v", tensor.BF16, static(256), static(256)), graph.Tensor{})) // siblings
	loss := y.Softmax().GLU(x, ir.SiLU).Add(y).Add(z).LinearCrossEntropy(w, ids)
	p := g.Program().Result("loss", loss).Result("grad", g.Gradients(loss, []graph.Tensor{a}, false)[0])
	e, err := p.Compile(dev)
	require.NoError(t, err)
	defer e.Close()
	for _, arg := range e.Program().Args {
		b, err := dev.Alloc(arg.Type.Bytes(g.IR().MaxDims()))
		require.NoError(t, err)
		defer b.Free()
		require.NoError(t, e.Bind(arg.Name, b))
		if arg.Name == "hi" { // causal
			var data []byte
			for i := range uint32(600) {
				data = binary.LittleEndian.AppendUint32(data, i+1)
			}
			_, err := dev.Upload(b, 0, data)
			require.NoError(t, err)
		}
	}
	for _, size := range []int{3, 600, 65, 1} {
		require.NoError(t, e.SetDim("n", size))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, e.RunWait(context.Background()))
		runtime.ReadMemStats(&after)
		// The runtime makes some hundred bytes of its own when goroutines first wait.
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<10), "bytes allocated by the first run with %d rows", size)
	}
}
