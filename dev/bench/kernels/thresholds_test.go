package kernels

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// planner is a GPU that plans programs and records what they would launch.
type planner struct {
	*null.Device
	thresholds gpu.Thresholds
	launched   [][]string // of each program
}

func (p *planner) Info() backend.Info {
	return backend.Info{Backend: "planner", Name: "no GPU", Precision: p.Precision}
}
func (p *planner) Thresholds() gpu.Thresholds     { return p.thresholds }
func (p *planner) SetThresholds(t gpu.Thresholds) { p.thresholds = t }

func (p *planner) Compile(prog *ir.Program) (backend.Executable, error) {
	target := gpu.Target{Precision: p.Precision, Sizes: gpu.DefaultSizes()}
	target.Thresholds = p.thresholds
	plan, err := gpu.New(prog, target)
	if err != nil {
		return nil, err
	}
	plan.Bind(make([]gpu.Launch, len(plan.Kernels)))
	run := gpu.Run{Dims: prog.MaxDims(), Args: make([]gpu.Pointer, len(prog.Args))}
	var names []string
	for i := range plan.Len() {
		plan.Fill(i, &run)
	}
	for _, k := range plan.Kernels {
		if k.Launch.Grid[0] > 0 {
			names = append(names, k.Name)
		}
	}
	p.launched = append(p.launched, names)
	return p.Device.Compile(prog)
}

// Each row measures the kernels of its name, and the device has its own thresholds again afterwards.
func TestThresholds(t *testing.T) {
	devices := map[backend.Precision]*planner{}
	backend.Register("planner", backend.Driver{Rank: -1, Open: func(o backend.Options) (backend.Device, error) {
		dev := &planner{Device: &null.Device{Precision: o.Precision, Claims: gpu.Supports, Keeps: gpu.Stores}, thresholds: gpu.ThresholdsOf(backend.CUDA)}
		devices[o.Precision] = dev
		return dev, nil
	}})
	r, err := Run(t.Context(), Options{Turns: bench.Turns{Runs: 1}, Backend: "planner", Thresholds: true, Once: true})
	require.NoError(t, err)
	dev := devices[backend.BF16]
	require.Equal(t, gpu.ThresholdsOf(backend.CUDA), dev.thresholds)
	require.Len(t, dev.launched, len(r.Rows))
	measured := map[string]int{}
	for i, row := range r.Rows {
		require.Empty(t, row.Failure, row.ID())
		measured[row.Group]++
		found := dev.launched[i]
		launches := func(kernel string) bool {
			return slices.ContainsFunc(found, func(name string) bool { return strings.HasPrefix(name, kernel) })
		}
		for _, e := range thresholds {
			for _, v := range e.variants {
				// Queries that are in no tile are computed one by one.
				if e.name == row.Group && (v.kernel == row.Name || v.kernel != "attention_decode_") {
					assert.Equal(t, v.kernel == row.Name, launches(v.kernel), "%s: found %v", row.ID(), found)
				}
			}
		}
	}
	assert.Len(t, measured, 6)
	for name, n := range measured {
		assert.GreaterOrEqual(t, n, 4, name)
	}
}

// A device without variants is refused.
func TestNoThresholds(t *testing.T) {
	o := small("")
	o.Thresholds = true
	_, err := Run(t.Context(), o)
	require.ErrorIs(t, err, bench.ErrOptions)
	require.ErrorContains(t, err, "thresholds of cpu; expected a GPU")
}
