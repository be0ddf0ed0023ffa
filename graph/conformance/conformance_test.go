package conformance

import (
	"context"
	"flag"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

var update = flag.Bool("update", false, "write the golden files of this package anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openCPU() (backend.Device, error) { return cpu.Open(backend.Options{}) }

func TestEveryOperationHasACase(t *testing.T) {
	rows, names := map[ir.Op]int{}, map[string]bool{}
	for _, c := range cases() {
		if !c.bench {
			rows[c.op]++
		}
		assert.False(t, names[c.String()], "two rows are called %s", &c)
		names[c.String()] = true
		assert.True(t, c.set(t).uses(c.op), "%s has no %v in it", &c, c.op)
	}
	for _, name := range slowCases {
		assert.True(t, names[name], "no row is called %s", name)
	}
	for _, op := range ir.Ops() {
		assert.NotZero(t, rows[op], "no row for %v in the tables of this package", op)
	}
}

func (s *scene) uses(op ir.Op) bool {
	return slices.ContainsFunc(s.g.Nodes, func(n ir.Node) bool { return n.Op == op })
}

// TestSupport lists which composites run decomposed on which backend.
func TestSupport(t *testing.T) {
	dev := opened(t, openCPU)
	planned := &null.Device{Claims: gpu.Supports} // by backend/gpu, for both kinds of GPUs
	names := []string{backend.CPU, backend.CUDA, backend.Metal, backend.Null, "none"}
	got := Support(t, names, []backend.Device{dev, planned, planned, &null.Device{}, primitive{dev}})
	golden := filepath.Join("testdata", "support.md")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// TestSupportCounts uses a device that runs only some cases of a composite.
func TestSupportCounts(t *testing.T) {
	narrow := &null.Device{Claims: func(op ir.Op, attr any, _ []ir.Type) bool {
		a, ok := attr.(ir.AttentionAttr)
		return op == ir.GLU || ok && a.Window == 0
	}}
	got := Support(t, []string{"narrow"}, []backend.Device{narrow})
	assert.Contains(t, got, "| GLU | yes |\n")
	assert.Contains(t, got, "| GLUGrad | no |\n")
	assert.Regexp(t, `\| Attention \| \d+ of \d+ \|`, got)
}

// faulty changes launches before its device sees them.
type faulty struct {
	backend.Device
	spoil func(l *ir.Launch)
}

func (f faulty) Compile(p *ir.Program) (backend.Executable, error) {
	q := *p
	q.Launches = slices.Clone(p.Launches)
	for i := range q.Launches {
		l := &q.Launches[i]
		l.In, l.Out = slices.Clone(l.In), slices.Clone(l.Out)
		f.spoil(l)
	}
	return f.Device.Compile(&q)
}

// faults are mistakes that a backend may have; the suite must find each.
var faults = map[string]func(l *ir.Launch){
	"second product": func(l *ir.Launch) {
		if a, ok := l.Attr.(ir.GemmAttr); ok && a.N > 1 {
			a.P[1].Alpha *= 1.001
			l.Attr = a
		}
	},
	"random stream": func(l *ir.Launch) {
		if a, ok := l.Attr.(ir.DropoutAttr); ok {
			a.Stream++
			l.Attr = a
		}
	},
	"window": func(l *ir.Launch) {
		if a, ok := l.Attr.(ir.AttentionAttr); ok {
			a.Window = 0
			l.Attr = a
		}
	},
	"exchanged gradients": func(l *ir.Launch) {
		if l.Op == ir.AttentionGrad && l.Out[1].Type.Equal(l.Out[2].Type) {
			l.Out[1], l.Out[2] = l.Out[2], l.Out[1]
		}
	},
	"eps": func(l *ir.Launch) {
		if a, ok := l.Attr.(ir.NormAttr); ok {
			l.Attr = ir.NormAttr{Eps: 0.9 * a.Eps}
		}
	},
	"activation": func(l *ir.Launch) {
		if a, ok := l.Attr.(ir.GLUAttr); ok && a.Act == ir.GELU {
			l.Attr = ir.GLUAttr{Act: ir.GELUTanh}
		}
	},
	"operands": func(l *ir.Launch) {
		if a, ok := l.Attr.(ir.BinaryAttr); ok && a.Fn == ir.Sub {
			l.In[0], l.In[1] = l.In[1], l.In[0]
		}
	},
	"slice": func(l *ir.Launch) {
		if a, ok := l.Attr.(ir.SliceAttr); ok && a.Start > 0 {
			l.Attr = ir.SliceAttr{Axis: a.Axis, Start: a.Start - 1, End: a.End - 1}
		}
	},
}

// oneFence is a device whose executables have one fence each, which gives the error
// of the run that was given last.
type oneFence struct{ backend.Device }

func (d oneFence) Compile(p *ir.Program) (backend.Executable, error) {
	e, err := d.Device.Compile(p)
	return &oneFenceExecutable{Executable: e}, err
}

type oneFenceExecutable struct {
	backend.Executable
	err error
}

func (e *oneFenceExecutable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	_, e.err = e.Executable.Run(ctx, args)
	return e, nil
}

func (e *oneFenceExecutable) Wait(context.Context) error { return e.err }

// oneFenceFault is the fault of that.
const oneFenceFault = "fences"

const faultVariable = "BACKENDTEST_FAULT"

// TestFaultyDevice fails: it is run by TestFaultsAreFound.
func TestFaultyDevice(t *testing.T) {
	fault := os.Getenv(faultVariable)
	if fault == oneFenceFault {
		testFlights(t, oneFence{opened(t, openCPU)})
	}
	spoil, ok := faults[fault]
	if !ok {
		t.Skip("runs in a process of its own")
	}
	runValue(t, faulty{opened(t, openCPU), spoil})
}

func TestFaultsAreFound(t *testing.T) {
	run := func(fault string) error {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFaultyDevice$")
		cmd.Env = append(os.Environ(), faultVariable+"="+fault)
		return cmd.Run()
	}
	require.NoError(t, run(""))
	for _, fault := range append(slices.Collect(maps.Keys(faults)), oneFenceFault) {
		assert.Error(t, run(fault), "a device with a fault in %q passes", fault)
	}
}

func TestDifference(t *testing.T) {
	worst, where := difference([]float64{1, 2, 3.3}, []float64{1, 2, 3})
	assert.Equal(t, 2, where)
	assert.InDelta(t, 0.3/(3+math.Sqrt(14.0/3)), worst, 1e-12)
	for _, c := range []struct{ got, want float64 }{
		{math.NaN(), 1}, {1, math.NaN()}, {math.Inf(1), 1}, {1, math.Inf(1)}, {math.Inf(-1), math.Inf(1)}, {math.NaN(), math.Inf(1)},
	} {
		worst, _ = difference([]float64{0, c.got}, []float64{0, c.want})
		assert.True(t, math.IsInf(worst, 1), "%v for %v", c.got, c.want)
	}
	worst, _ = difference([]float64{math.NaN(), math.Inf(-1), 0}, []float64{math.NaN(), math.Inf(-1), 0})
	assert.Zero(t, worst)
	worst, _ = difference([]float64{1e-3, 0}, []float64{0, 0})
	assert.Positive(t, worst, "an error where all should be zero")
	worst, _ = difference([]float64{1}, []float64{1, 2})
	assert.True(t, math.IsInf(worst, 1))
}

func TestEncoding(t *testing.T) {
	for d, x := range map[tensor.DType][]float64{
		tensor.F32: {1.5, -2}, tensor.BF16: {1.5, -256}, tensor.F16: {0.25, 3}, tensor.F64: {1e300, 1}, tensor.I32: {-7, 8},
		tensor.U32: {math.MaxUint32, 1}, tensor.Bool: {0, 1},
	} {
		assert.Equal(t, x, decode(d, encode(d, x)), "%v", d)
	}
	x := []float64{1.001}
	roundTo(tensor.BF16, x)
	assert.Equal(t, []float64{1}, x)
	y := apart(rand.New(rand.NewPCG(1, 1)), []int{9})
	slices.Sort(y)
	for i := 1; i < len(y); i++ {
		assert.InDelta(t, 0.1, y[i]-y[i-1], 1e-9)
	}
}
