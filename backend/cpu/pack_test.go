package cpu_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// packedRun is a small network whose weights are imported, forward and
// backward, on a device with packed copies as said.
type packedRun struct {
	exe  *exec.Executable
	bufs map[string]backend.Buffer
}

func newPackedRun(t *testing.T, dev *cpu.Device) *packedRun {
	g := graph.New()
	n, static := g.Bound("n", 600), ir.Static
	x, labels := g.Param("x", tensor.F32, n, static(128)), g.Param("labels", tensor.I32, n)
	w, head := g.Param("w", tensor.BF16, static(128), static(128)), g.Param("head", tensor.F32, static(160), static(128))
	a, b := g.Param("a", tensor.F32, static(8), static(128)), g.Param("b", tensor.F32, static(128), static(8))
	y := x.LoRA(w, graph.Tensor{}, x.Linear(a, graph.Tensor{}), b, 2)
	loss := y.Linear(w, graph.Tensor{}).LinearCrossEntropy(head, labels)
	grads := g.Gradients(loss, []graph.Tensor{a, x}, false)
	e, err := g.Program().Result("loss", loss).Result("da", grads[0]).Result("dx", grads[1]).Compile(dev)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	p := &packedRun{e, map[string]backend.Buffer{}}
	for i, arg := range e.Program().Args {
		size := arg.Type.Bytes(g.IR().MaxDims())
		data := make([]byte, size)
		values := make([]float32, size/arg.Type.DType.Size())
		for j := range values {
			values[j] = float32((j*7+i)%13-6) / 16
		}
		if arg.Type.DType != tensor.I32 {
			require.NoError(t, tensor.FromFloat32(data, values, arg.Type.DType))
		}
		buf, err := dev.Import(weights.Data{Bytes: data})
		require.NoError(t, err)
		if arg.Written {
			buf, err = dev.Alloc(size)
			require.NoError(t, err)
		}
		t.Cleanup(buf.Free)
		p.bufs[arg.Name] = buf
		require.NoError(t, e.Bind(arg.Name, buf))
	}
	return p
}

func (p *packedRun) results(t *testing.T, dev *cpu.Device) map[string][]byte {
	require.NoError(t, p.exe.RunWait(context.Background()))
	out := map[string][]byte{}
	for _, name := range []string{"loss", "da", "dx"} {
		out[name] = make([]byte, p.bufs[name].Size())
		_, err := dev.Download(out[name], p.bufs[name], 0)
		require.NoError(t, err)
	}
	return out
}

// TestPack: packed copies change no bit, keep to their limit, are made once, and
// are given back with the buffers.
func TestPack(t *testing.T) {
	open := func() *cpu.Device {
		dev, err := cpu.Open(backend.Options{Threads: 2})
		require.NoError(t, err)
		t.Cleanup(func() { dev.Close() })
		return dev
	}
	plain := open()
	want := newPackedRun(t, plain).results(t, plain)
	for _, c := range []struct {
		mode  backend.Pack
		limit int64
		some  bool
	}{{backend.PackNever, 1 << 30, false}, {backend.PackAlways, 1 << 30, true}, {backend.PackAlways, 100 << 10, true}, {backend.PackAlways, 10, false}, {backend.PackAlways, 0, true}} {
		dev := open()
		dev.SetPack(c.mode, c.limit)
		p := newPackedRun(t, dev)
		all, err := dev.PackedBytes(c.mode, p.exe.Program())
		require.NoError(t, err)
		for range 2 {
			require.Equal(t, want, p.results(t, dev), "%v", c)
		}
		used := dev.Packed()
		require.Equal(t, c.some, used > 0, "%v: %d bytes", c, used)
		require.LessOrEqual(t, used, all)
		if c.limit > 0 {
			require.LessOrEqual(t, used, c.limit)
		}
		if c.limit == 1<<30 {
			require.Equal(t, all, used)
		}
		require.Zero(t, testing.AllocsPerRun(5, func() { _ = p.exe.RunWait(context.Background()) }))
		for _, b := range p.bufs {
			b.Free()
		}
		require.Zero(t, dev.Packed(), "copies go with their buffers")
	}
}

// TestPackAuto: copies are for few rows.
func TestPackAuto(t *testing.T) {
	dev, err := cpu.Open(backend.Options{Threads: 1})
	require.NoError(t, err)
	defer dev.Close()
	for rows, some := range map[int]bool{4: false, 64: true, 4096: false} {
		g := graph.New()
		y := g.Param("x", tensor.F32, ir.Static(rows), ir.Static(128)).Linear(g.Param("w", tensor.BF16, ir.Static(256), ir.Static(128)), graph.Tensor{})
		p, err := g.Program().Result("y", y).Plan(dev.Supports)
		require.NoError(t, err)
		n, err := dev.PackedBytes(backend.PackAuto, p)
		require.NoError(t, err)
		require.Equal(t, some, n > 0, "%d rows", rows)
	}
}
