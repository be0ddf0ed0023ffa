package conformance

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// testCase is one case of the tables: an operation on inputs of given types.
type testCase struct {
	op     ir.Op
	name   string // what distinguishes this case
	bounds string // "n=5/8": dimension n is 5 in the run, 8 at most
	in     []input
	build  func(g *ir.Graph, in []ir.Value) []ir.Value
	// limit is the error allowed relative to the result. Zero means [defaultLimit]; integers must be equal.
	limit float64
	bench bool // too large except for benchmarks
	// lossOuts is the number of outputs with a gradient. Zero means all.
	lossOuts int
}

// defaultLimit is about twenty units in the last place of a float32.
const defaultLimit = 2e-6

// input is a param: its type as text, and the function that fills it.
type input struct {
	typ    string
	fill   fill
	frozen bool // not differentiated
}

// arg returns an input that is differentiated if it is a float.
func arg(typ string, f fill) input { return input{typ: typ, fill: f} }

// frozen returns an input that is not differentiated.
func frozen(typ string, f fill) input { return input{typ: typ, fill: f, frozen: true} }

// String returns the name of the case's subtests.
func (c *testCase) String() string {
	if c.name == "" {
		return c.op.String()
	}
	return c.op.String() + "/" + c.name
}

func (c *testCase) tolerance() float64 {
	if c.limit == 0 {
		return defaultLimit
	}
	return c.limit
}

// scene is a case with its graph built and its inputs filled.
type scene struct {
	*testCase
	graph *graph.Graph
	g     *ir.Graph
	in    []ir.Value
	outs  []ir.Value
	dims  []int // run-time values of the bounded dimensions
	hosts map[string]*ir.Host
}

// set builds the graph and the inputs of the case, the same ones each time.
func (c *testCase) set(t testing.TB) *scene {
	t.Helper()
	s := c.params(t)
	s.outs = c.build(s.g, s.in)
	require.NoError(t, s.g.Err())
	return s
}

// params builds the inputs of the case without the operation.
func (c *testCase) params(t testing.TB) *scene {
	t.Helper()
	s := &scene{testCase: c, graph: graph.New(), hosts: map[string]*ir.Host{}}
	s.g = s.graph.IR()
	s.dims = []int{0}
	for _, b := range strings.Fields(c.bounds) {
		var run, most int
		name, sizes, _ := strings.Cut(b, "=")
		_, err := fmt.Sscanf(sizes, "%d/%d", &run, &most)
		require.NoError(t, err, "bound %q", b)
		s.g.Bound(name, most)
		s.dims = append(s.dims, run)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.String()))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	for i, in := range c.in {
		typ := parseType(t, s.g, in.typ)
		name := fmt.Sprintf("in%d", i)
		s.in = append(s.in, s.g.Param(name, typ))
		host := ir.NewHost(typ, s.dims)
		copy(host.Data, in.fill(r, host.Shape))
		roundTo(typ.DType, host.Data)
		s.hosts[name] = host
	}
	require.NoError(t, s.g.Err())
	return s
}

// parseType parses a type such as f32[n,2k,64], in which n and k are bounded dimensions.
func parseType(t testing.TB, g *ir.Graph, text string) ir.Type {
	t.Helper()
	name, rest, _ := strings.Cut(text, "[")
	dtype, err := tensor.ParseDType(strings.ToUpper(name))
	require.NoError(t, err)
	shape := ir.Shape{}
	for _, axis := range strings.Split(strings.TrimSuffix(rest, "]"), ",") {
		digits := strings.TrimRight(axis, "abcdefghijklmnopqrstuvwxyz")
		n := 1
		if digits != "" {
			n, err = strconv.Atoi(digits)
			require.NoError(t, err, "type %q", text)
		}
		switch v := axis[len(digits):]; {
		case v != "":
			shape = append(shape, ir.Dim{N: n, Var: variable(t, g, v)})
		case axis != "":
			shape = append(shape, ir.Static(n))
		}
	}
	return ir.Type{DType: dtype, Shape: shape}
}

func variable(t testing.TB, g *ir.Graph, name string) ir.Var {
	t.Helper()
	for v, b := range g.Bounds {
		if v > 0 && b.Name == name {
			return ir.Var(v)
		}
	}
	require.Fail(t, "no bounded dimension", name)
	return 0
}
