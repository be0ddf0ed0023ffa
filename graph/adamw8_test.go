package graph_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestAdamW8Golden compares steps with 8-bit moments with bitsandbytes: codes and scales bit for bit, parameters except
// for the last bit. Decomposed, a code may be the next one.
func TestAdamW8Golden(t *testing.T) {
	f, err := safetensors.Open("../testdata/dit/adam8bit/golden.safetensors")
	require.NoError(t, err)
	defer f.Close()
	read := func(name string) tensor.Tensor {
		v, err := f.Lookup(name)
		require.NoError(t, err)
		d, err := tensor.ParseDType(v.DType.String())
		require.NoError(t, err)
		return tensor.Tensor{DType: d, Shape: v.Shape, Data: v.Bytes()}
	}
	device := testdevice.Open(t, backend.Options{})
	for _, whole := range []bool{true, false} {
		t.Run(map[bool]string{true: "whole", false: "decomposed"}[whole], func(t *testing.T) {
			e := graph.NewEvaluator(device, graph.EvaluatorOptions{})
			defer func() { require.NoError(t, e.Close()) }()
			exact := whole // and the device has it, which is seen below
			state := firstState(t, read("init.0"))
			maps, err := tensor.FromFloat32s(ir.AdamW8MapValues(), 2, 256)
			require.NoError(t, err)
			attr := ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}
			for step := range 8 {
				rates := attr.Rates(0.01, 0.01, step+1)
				g := graph.New()
				var in []ir.Value
				for _, x := range append(state, read(fmt.Sprintf("grad.%d.0", step)), maps, *floats(t, rates[:], 3), *floats(t, []float32{1})) {
					in = append(in, g.Value(x).Value())
				}
				var types []ir.Type
				for _, v := range in {
					types = append(types, g.IR().Type(v))
				}
				exact = exact && device.Supports(ir.AdamW8, attr, types)
				var outs []ir.Value
				if whole {
					all := g.IR().AdamW8(in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8], attr)
					outs = all[:]
				} else {
					outs = ir.Def(ir.AdamW8).Decompose(g.IR(), attr, in)
				}
				var results []graph.Tensor
				for _, v := range outs {
					results = append(results, g.Of(v))
				}
				require.NoError(t, g.Err())
				got, err := e.Eval(context.Background(), results...)
				require.NoError(t, err)
				for i := range state {
					state[i] = *got[i]
				}
				if step != 0 && step != 7 {
					continue
				}
				name := fmt.Sprintf("state.%d.0.", step)
				requireCodes(t, read(name+"state1"), state[1], exact)
				requireCodes(t, read(name+"state2"), state[2], exact)
				requireFloats(t, read(name+"absmax1"), state[3], !exact, 1e-6)
				requireFloats(t, read(name+"absmax2"), state[4], !exact, 1e-6)
				// The last bit: where a code has been the next one, a little more.
				requireFloats(t, read(fmt.Sprintf("after.%d.0", step)), state[0], true, map[bool]float64{true: 1e-7, false: 1e-3}[exact])
			}
		})
	}
}

// firstState returns a parameter with zero moments.
func firstState(t *testing.T, p tensor.Tensor) []tensor.Tensor {
	blocks := (p.NumElements() + 255) / 256
	state := []tensor.Tensor{p}
	for _, x := range []struct {
		d     tensor.DType
		shape []int
	}{{tensor.U8, p.Shape}, {tensor.U8, p.Shape}, {tensor.F32, []int{blocks}}, {tensor.F32, []int{blocks}}} {
		z, err := tensor.New(x.d, x.shape...)
		require.NoError(t, err)
		state = append(state, z)
	}
	return state
}

func requireCodes(t *testing.T, want, got tensor.Tensor, exact bool) {
	t.Helper()
	if exact {
		require.Equal(t, want.Data, got.Data)
		return
	}
	others := 0
	for i := range want.Data {
		if want.Data[i] != got.Data[i] {
			others++
		}
	}
	assert.LessOrEqual(t, others, len(want.Data)/200)
}

func requireFloats(t *testing.T, want, got tensor.Tensor, near bool, tolerance float64) {
	t.Helper()
	w, err := want.Float32s()
	require.NoError(t, err)
	x, err := got.Float32s()
	require.NoError(t, err)
	if !near {
		require.Equal(t, w, x)
		return
	}
	for i := range w {
		require.LessOrEqual(t, math.Abs(float64(w[i]-x[i])), tolerance*(1+math.Abs(float64(w[i]))))
	}
}
