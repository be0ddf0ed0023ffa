package conformance

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// run computes values of the scene's graph on the device. It adds the results to spec, which holds the options.
func (s *scene) run(t testing.TB, dev backend.Device, outs []ir.Value, spec exec.Spec) [][]byte {
	t.Helper()
	for i, v := range outs {
		spec.Results = append(spec.Results, exec.Result{Name: fmt.Sprintf("out%d", i), Value: v})
	}
	e, err := exec.Compile(s.g, spec, dev)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	return s.runExecutable(t, dev, e, outs)
}

// runExecutable runs e once with the scene's inputs and returns its results.
func (s *scene) runExecutable(t testing.TB, dev backend.Device, e *exec.Executable, outs []ir.Value) [][]byte {
	t.Helper()
	buffers := s.bind(t, dev, e)
	defer free(buffers)
	require.NoError(t, e.RunWait(context.Background()))
	results := make([][]byte, len(outs))
	for i := range outs {
		j := e.Program().ArgIndex(fmt.Sprintf("out%d", i))
		results[i] = make([]byte, e.Program().Args[j].Bytes(s.dims))
		download(t, dev, results[i], buffers[j])
	}
	return results
}

// bind allocates and binds buffers for all arguments of e, filled with the scene's inputs.
func (s *scene) bind(t testing.TB, dev backend.Device, e *exec.Executable) []backend.Buffer {
	t.Helper()
	for v, b := range s.g.Bounds {
		if v > 0 {
			require.NoError(t, e.SetDim(b.Name, s.dims[v]))
		}
	}
	var buffers []backend.Buffer
	for _, a := range e.Program().Args {
		buf, err := dev.Alloc(a.Bytes(s.g.MaxDims()))
		require.NoError(t, err)
		buffers = append(buffers, buf)
		require.NoError(t, e.Bind(a.Name, buf))
		if h := s.hosts[a.Name]; h != nil {
			upload(t, dev, buf, encode(a.Stored(), h.Data))
		}
	}
	return buffers
}

func upload(t testing.TB, dev backend.Device, dst backend.Buffer, src []byte) {
	t.Helper()
	f, err := dev.Upload(dst, 0, src)
	require.NoError(t, err)
	require.NoError(t, f.Wait(context.Background()))
}

func download(t testing.TB, dev backend.Device, dst []byte, src backend.Buffer) {
	t.Helper()
	f, err := dev.Download(dst, src, 0)
	require.NoError(t, err)
	require.NoError(t, f.Wait(context.Background()))
}

func free(buffers []backend.Buffer) {
	for _, b := range buffers {
		b.Free()
	}
}

// reference computes values with the float64 reference.
func (s *scene) reference(t testing.TB, outs []ir.Value) []*ir.Host {
	t.Helper()
	hosts, err := s.g.Reference(outs, s.hosts, s.dims)
	require.NoError(t, err)
	return hosts
}

// compare requires results to match the reference within limit; values that are not floats must be equal.
func (s *scene) compare(t testing.TB, results [][]byte, outs []ir.Value, want []*ir.Host, limit float64) {
	t.Helper()
	for i, v := range outs {
		typ := s.g.Type(v)
		got := hostOf(typ, s.dims, results[i])
		if !typ.DType.IsFloat() {
			require.Equal(t, want[i].Data, got.Data, "output %d %v", i, typ)
			continue
		}
		worst, where := difference(got.Data, want[i].Data)
		t.Logf("margin %s: error %.2g of %.2g", t.Name(), worst, limit)
		if worst > limit {
			require.Failf(t, "wrong result", "output %d %v: element %d is %v, expected %v (error %.2g, limit %.2g)",
				i, typ, where, got.Data[where], want[i].Data[where], worst, limit)
		}
	}
}
