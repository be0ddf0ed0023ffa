package gputest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
)

// Bound is a compiled program with a buffer for each argument, which keeps its contents from run to run.
type Bound struct {
	*exec.Executable
	dev     backend.Device
	buffers map[string]backend.Buffer
}

// Bind compiles a program for a device and allocates its arguments. The test closes it.
func Bind(t testing.TB, dev backend.Device, p *graph.Program) *Bound {
	t.Helper()
	e, err := p.Compile(dev)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	b := &Bound{e, dev, map[string]backend.Buffer{}}
	for _, a := range e.Program().Args {
		b.buffers[a.Name], err = dev.Alloc(a.Bytes(e.Program().MaxDims()))
		require.NoError(t, err)
		require.NoError(t, e.Bind(a.Name, b.buffers[a.Name]))
	}
	return b
}

// Set uploads the contents of an argument, unless nothing reads it.
func (b *Bound) Set(t require.TestingT, name string, data []byte) {
	if b.buffers[name] == nil {
		return
	}
	f, err := b.dev.Upload(b.buffers[name], 0, data)
	require.NoError(t, err)
	require.NoError(t, f.Wait(context.Background()))
}

// Get downloads the first n bytes of an argument.
func (b *Bound) Get(t require.TestingT, name string, n int) []byte {
	out := make([]byte, n)
	f, err := b.dev.Download(out, b.buffers[name], 0)
	require.NoError(t, err)
	require.NoError(t, f.Wait(context.Background()))
	return out
}
