package exec_test

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

func f32(dims ...int) ir.Type { return ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(dims...)} }

func device(t testing.TB) backend.Device {
	t.Helper()
	dev, err := cpu.Open(backend.Options{Threads: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// everything supports all composites.
func everything(ir.Op, any, []ir.Type) bool { return true }

func plan(t testing.TB, g *ir.Graph, spec exec.Spec) *ir.Program {
	t.Helper()
	p, err := exec.Plan(g, spec, everything)
	require.NoError(t, err)
	return p
}

// results makes a spec that asks for values as r0, r1, ...
func results(vs ...ir.Value) exec.Spec {
	var s exec.Spec
	for i, v := range vs {
		s.Results = append(s.Results, exec.Result{Name: "r" + string(rune('0'+i)), Value: v})
	}
	return s
}

// session runs a compiled program on float32 arguments that live on.
type session struct {
	t       testing.TB
	dev     backend.Device
	exe     *exec.Executable
	buffers map[string]backend.Buffer
}

func start(t testing.TB, g *ir.Graph, spec exec.Spec, dev backend.Device) *session {
	t.Helper()
	e, err := exec.Compile(g, spec, dev)
	require.NoError(t, err)
	s := &session{t, dev, e, map[string]backend.Buffer{}}
	for _, a := range e.Program().Args {
		b, err := dev.Alloc(a.Type.Bytes(e.Program().MaxDims()))
		require.NoError(t, err)
		require.NoError(t, e.Bind(a.Name, b))
		s.buffers[a.Name] = b
	}
	t.Cleanup(func() {
		for _, b := range s.buffers {
			b.Free()
		}
		require.NoError(t, e.Close())
	})
	return s
}

func (s *session) set(name string, x ...float32) {
	s.t.Helper()
	if s.buffers[name] == nil {
		return // nothing reads it
	}
	b := make([]byte, 4*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	s.setBytes(name, b)
}

func (s *session) setBytes(name string, b []byte) {
	s.t.Helper()
	f, err := s.dev.Upload(s.buffers[name], 0, b)
	require.NoError(s.t, err)
	require.NoError(s.t, f.Wait(context.Background()))
}

func (s *session) run() {
	s.t.Helper()
	require.NoError(s.t, s.exe.RunWait(context.Background()))
}

func (s *session) bytes(name string) []byte {
	s.t.Helper()
	b := make([]byte, s.buffers[name].Size())
	f, err := s.dev.Download(b, s.buffers[name], 0)
	require.NoError(s.t, err)
	require.NoError(s.t, f.Wait(context.Background()))
	return b
}

func (s *session) get(name string) []float32 {
	s.t.Helper()
	b := s.bytes(name)
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}
