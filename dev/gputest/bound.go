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
	b, err := bind(dev, e)
	require.NoError(t, err)
	return b
}

// bind allocates the arguments of a program.
func bind(dev backend.Device, e *exec.Executable) (*Bound, error) {
	b := &Bound{e, dev, map[string]backend.Buffer{}}
	for _, a := range e.Program().Args {
		buffer, err := dev.Alloc(a.Bytes(e.Program().MaxDims()))
		if err != nil {
			return b, err
		}
		b.buffers[a.Name] = buffer
		if err := e.Bind(a.Name, buffer); err != nil {
			return b, err
		}
	}
	return b, nil
}

// free frees the arguments.
func (b *Bound) free() {
	for _, buffer := range b.buffers {
		buffer.Free()
	}
}

// Set uploads the contents of an argument, unless nothing reads it.
func (b *Bound) Set(t require.TestingT, name string, data []byte) {
	if b.buffers[name] != nil {
		require.NoError(t, b.upload(name, data))
	}
}

// Get downloads the first n bytes of an argument.
func (b *Bound) Get(t require.TestingT, name string, n int) []byte {
	out := make([]byte, n)
	require.NoError(t, b.download(name, out))
	return out
}

func (b *Bound) upload(name string, data []byte) error {
	return done(b.dev.Upload(b.buffers[name], 0, data))
}

func (b *Bound) download(name string, into []byte) error {
	return done(b.dev.Download(into, b.buffers[name], 0))
}

// done waits for a copy.
func done(f backend.Fence, err error) error {
	if err != nil {
		return err
	}
	return f.Wait(context.Background())
}
