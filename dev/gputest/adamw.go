package gputest

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// AdamWTogether checks that a step on 23 tensors, batched as in training, uses the given number of launches and
// matches the CPU.
func AdamWTogether(t *testing.T, dev backend.Device, launches int) {
	host, err := cpu.Open(backend.Options{})
	require.NoError(t, err)
	defer host.Close()
	v := newValues(9)
	p := v.g.Program()
	rates, scale := v.g.Const(0.9, ir.Static(3)), v.floats(tensor.F32, 1)
	const tensors = 23
	var names []string
	param := func(n int, scale float64) graph.Tensor {
		names = append(names, fmt.Sprintf("in%d", len(v.args)))
		return v.floats(tensor.F32, scale, n)
	}
	for i := range tensors {
		n := []int{7, 1024, 1500, 3, 0}[i%5]
		w, m, s, g := param(n, 1), param(n, 1), param(n, 0), param(n, 1)
		own := names[len(names)-4:]
		w2, m2, s2 := w.AdamW(m, s, g, rates, scale, ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
		p.Update(own[0], w2).Update(own[1], m2).Update(own[2], s2).Update(own[3], v.g.Const(0, ir.Static(n)))
	}
	prog, err := p.Plan(dev.Supports)
	require.NoError(t, err)
	want := v.inPlace(t, host, prog, func(backend.Executable) {})
	got := v.inPlace(t, dev, prog, func(e backend.Executable) {
		require.Equal(t, launches, launched(e, ir.AdamW), "launches of AdamW for %d tensors", tensors)
	})
	for i := range want {
		for j, w := range want[i] {
			require.InDelta(t, w, got[i][j], 1e-6*(1+math.Abs(float64(w))), prog.Args[i].Name)
		}
	}
}

// launched counts the launches of an operation that do not run as a part of another one.
func launched(e backend.Executable, op ir.Op) (n int) {
	p := e.(*gpu.Executable).Plan
	for i := range p.Len() {
		if from, to := p.Range(i); p.Op(i) == op && from < to {
			n++
		}
	}
	return n
}

// inPlace runs a program twice on buffers with the values and returns their final contents; look is called for each
// run.
func (v *values) inPlace(t *testing.T, dev backend.Device, prog *ir.Program, look func(backend.Executable)) (all [][]float32) {
	t.Helper()
	e, err := dev.Compile(prog)
	require.NoError(t, err)
	defer e.Close()
	look(e)
	args := backend.Args{Dims: []int{0}}
	for _, a := range prog.Args {
		b, err := dev.Alloc(a.Type.Bytes(nil))
		require.NoError(t, err)
		defer b.Free()
		Wait(t)(dev.Upload(b, 0, v.args[a.Name].Data))
		args.Buffers = append(args.Buffers, b)
	}
	for range 2 {
		Wait(t)(e.Run(context.Background(), args))
	}
	for i, a := range prog.Args {
		data, f := make([]byte, a.Type.Bytes(nil)), make([]float32, a.Type.Shape.Elements(nil))
		Wait(t)(dev.Download(data, args.Buffers[i], 0))
		require.NoError(t, tensor.ToFloat32(f, data, a.Type.DType))
		all = append(all, f)
	}
	return all
}

// AdamWInOrder: steps that depend on each other are not taken together.
func AdamWInOrder(t *testing.T, dev backend.Device) {
	v := newValues(2)
	attr := ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}
	w, m, s, g := v.floats(tensor.F32, 1, 40), v.floats(tensor.F32, 1, 40), v.floats(tensor.F32, 1, 40), v.floats(tensor.F32, 1, 40)
	rates, scale := v.g.Const(0.9, ir.Static(3)), v.g.Const(0.5)
	s = s.Mul(s)
	for range 4 {
		w, m, s = w.AdamW(m, s, g, rates, scale, attr)
		g = w.Scale(0.5)
	}
	v.check(t, dev, 1e-5, w, m, s)
}

// AdamW8Together checks that steps with 8-bit moments on six tensors, clipped by the norm of all gradients, use the
// given number of launches and match the CPU: codes and scales bit for bit, parameters except for the last bits.
func AdamW8Together(t *testing.T, dev backend.Device, launches int) {
	host, err := cpu.Open(backend.Options{})
	require.NoError(t, err)
	defer host.Close()
	v := newValues(10)
	p := v.g.Program()
	rates := v.g.Const(0.9, ir.Static(3))
	maps := v.param(tensor.F32, tensor.BytesOf(ir.AdamW8MapValues()), nil, 2, 256)
	sizes := []int{7, 256, 5000, 2048, 40000, 1}
	grads := make([]graph.Tensor, len(sizes))
	var norm graph.Tensor
	for i, n := range sizes {
		grads[i] = v.floats(tensor.F32, 1, n)
		if s := grads[i].SumSquares(); i == 0 {
			norm = s
		} else {
			norm = norm.Add(s)
		}
	}
	scale := norm.Sub(norm).AddScalar(0.5) // exact on all devices
	total := fmt.Sprintf("in%d", len(v.args))
	v.floats(tensor.F32, 1)
	p.Update(total, norm)
	for i, n := range sizes {
		first := len(v.args)
		codes := func() graph.Tensor {
			x := make([]byte, n)
			for j := range x {
				x[j] = byte(j*37 + i)
			}
			return v.param(tensor.U8, x, nil, n)
		}
		blocks := (n + 255) / 256
		w, m, s := v.floats(tensor.F32, 1, n), codes(), codes()
		out := w.AdamW8(m, s, v.floats(tensor.F32, 0, blocks), v.floats(tensor.F32, 0, blocks), grads[i], maps, rates, scale, ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
		for j, x := range out {
			p.Update(fmt.Sprintf("in%d", first+j), x)
		}
	}
	prog, err := p.Plan(dev.Supports)
	require.NoError(t, err)
	want := v.inPlace(t, host, prog, func(backend.Executable) {})
	got := v.inPlace(t, dev, prog, func(e backend.Executable) {
		require.Equal(t, launches, launched(e, ir.AdamW8), "launches of AdamW8 for %d tensors", len(sizes))
	})
	for i, a := range prog.Args {
		if a.Type.DType == tensor.U8 {
			require.Equal(t, want[i], got[i], a.Name)
			continue
		}
		for j, w := range want[i] {
			require.InDelta(t, w, got[i][j], 1e-6*(1+math.Abs(float64(w))), a.Name)
		}
	}
}
