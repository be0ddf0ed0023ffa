package ir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/tensor"
)

// Space identifies the memory in which a program keeps a value.
type Space uint8

// Spaces: buffers that the caller passes, and the arena of the program.
const (
	SpaceArg Space = iota
	SpaceArena
)

// Ref is a value of a program: its location and its type.
type Ref struct {
	Space  Space
	Index  int // argument number
	Offset int // byte offset in the arena
	Type   Type
	// Store is the element type in memory, if it is narrower than the type in which the value is computed. Invalid
	// means that the two are the same.
	Store tensor.DType
}

// Launch is an operation on values at known locations.
type Launch struct {
	Op   Op
	Attr any
	In   []Ref
	Out  []Ref
}

// Arg is a buffer that the caller passes: a param of the graph, or an output.
type Arg struct {
	Name    string
	Type    Type
	Written bool
	Store   tensor.DType // see Ref.Store
}

// Place identifies an input or output of a launch.
type Place struct {
	Out   bool
	Index int
}

// Program is the executable form of a graph: launches in order over one arena and the arguments of the caller. Sizes
// are for the largest bounded dimensions; values are contiguous at their run-time shapes.
type Program struct {
	Bounds   []Bound // Bounds[0] is unused
	Args     []Arg
	Launches []Launch
	Arena    int // bytes

	index map[string]int // argument number by name, see IndexArgs
}

// MaxDims returns the largest values of the bounded dimensions.
func (p *Program) MaxDims() []int {
	dims := make([]int, len(p.Bounds))
	for i, b := range p.Bounds {
		dims[i] = b.Max
	}
	return dims
}

// IndexArgs builds the index that makes ArgIndex fast. Call it once all arguments are added.
func (p *Program) IndexArgs() {
	p.index = make(map[string]int, len(p.Args))
	for i, a := range p.Args {
		if _, twice := p.index[a.Name]; !twice {
			p.index[a.Name] = i
		}
	}
}

// ArgIndex returns the index of the argument called name, or -1.
func (p *Program) ArgIndex(name string) int {
	if len(p.index) == len(p.Args) {
		if i, ok := p.index[name]; ok {
			return i
		}
		return -1
	}
	return slices.IndexFunc(p.Args, func(a Arg) bool { return a.Name == name })
}

// Flops returns the number of floating-point operations of one run for the run-time values dims.
func (p *Program) Flops(dims []int) int {
	sum := 0
	for i := range p.Launches {
		f, _ := p.Launches[i].Cost(dims)
		sum += f
	}
	return sum
}

// Cost returns the number of floating-point operations of the launch, and of bytes that it reads and writes.
func (l *Launch) Cost(dims []int) (flops, bytes int) {
	return Cost(l.Op, l.Attr, storedTypes(l.In), storedTypes(l.Out), dims)
}

// Traffic returns the number of bytes that the launch reads and writes.
func (l *Launch) Traffic(dims []int) (read, written int) {
	return Traffic(l.Op, l.Attr, storedTypes(l.In), storedTypes(l.Out), dims)
}

func refTypes(refs []Ref) []Type {
	ts := make([]Type, len(refs))
	for i, r := range refs {
		ts[i] = r.Type
	}
	return ts
}

// String returns the bounded dimensions, arguments and launches as text. Equal programs have equal text.
func (p *Program) String() string {
	var b strings.Builder
	for v, bound := range p.Bounds {
		if v > 0 {
			fmt.Fprintf(&b, "v%d = %s ≤ %d\n", v, bound.Name, bound.Max)
		}
	}
	for i, a := range p.Args {
		mark := ""
		if a.Written {
			mark = " written"
		}
		fmt.Fprintf(&b, "arg %d %s %v%s%s\n", i, a.Name, a.Type, as(a.Store), mark)
	}
	fmt.Fprintf(&b, "arena %d\n", p.Arena)
	for i := range p.Launches {
		fmt.Fprintf(&b, "%v\n", &p.Launches[i])
	}
	return b.String()
}

// String returns the launch as text: results, operation with attributes, and inputs, as in @0:f32[8,32] = Gemm{NT}
// $0:f32[8,64], $1:f32[32,64].
func (l *Launch) String() string {
	var b strings.Builder
	for i, r := range l.Out {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%v", r)
	}
	fmt.Fprintf(&b, " = %v", l.Op)
	if s := attrString(l.Attr); s != "" {
		fmt.Fprintf(&b, "{%s}", s)
	}
	for i, r := range l.In {
		if i == 0 {
			b.WriteByte(' ')
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%v", r)
	}
	return b.String()
}

// String returns $2:f32[4] for an argument, @64:f32[4] for a value in the arena, and @64:f32[4] as bf16 if it is stored
// as bf16.
func (r Ref) String() string {
	if r.Space == SpaceArg {
		return fmt.Sprintf("$%d:%v%s", r.Index, r.Type, as(r.Store))
	}
	return fmt.Sprintf("@%d:%v%s", r.Offset, r.Type, as(r.Store))
}

func attrString(attr any) string {
	switch a := attr.(type) {
	case nil, ShapeAttr:
		return ""
	case IotaAttr:
		return fmt.Sprintf("Axis:%d", a.Axis)
	case PhiloxAttr:
		return fmt.Sprintf("Stream:%d", a.Stream)
	case ConstAttr:
		return fmt.Sprint(a.Value)
	case GemmAttr:
		var parts []string
		for i, p := range a.P[:a.N] {
			s := "NT"[boolIndex(p.TA):][:1] + "NT"[boolIndex(p.TB):][:1]
			if p.Alpha != 1 {
				s += fmt.Sprintf("·%g", p.Alpha)
			}
			if a.Scale(i) >= 0 {
				s += "·scale"
				if a.Block.Rows > 0 {
					s += fmt.Sprintf("%d×%d", a.Block.Rows, a.Block.Columns)
				}
			}
			parts = append(parts, s)
		}
		if a.HasBias {
			parts = append(parts, "bias")
		}
		if a.HasC {
			parts = append(parts, "C")
		}
		return strings.Join(parts, " ")
	case PermAttr:
		return fmt.Sprint(a.Perm())
	case UnaryAttr:
		return a.Fn.String()
	case BinaryAttr:
		return a.Fn.String()
	case CompareAttr:
		return a.Fn.String()
	}
	return strings.Trim(fmt.Sprintf("%+v", attr), "{}")
}

func boolIndex(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Verify checks the program. Types of launches must be valid, and all values inside the arena and the arguments. Each
// value in the arena must be written and intact when it is read. No output may overlap another output or, unless the
// operation allows it, an input of the same launch.
func (p *Program) Verify() error {
	dims := p.MaxDims()
	var held contents
	for i := range p.Launches {
		l := &p.Launches[i]
		err := p.verifyLaunch(l, dims)
		for j, r := range l.In {
			if err == nil && r.Space == SpaceArena && !held.has(r, dims) {
				err = fmt.Errorf("input %d %v is not there: it was not written, or was written over", j, r)
			}
		}
		if err != nil {
			return fmt.Errorf("launch %d %v: %w", i, l.Op, err)
		}
		for _, o := range l.Out {
			if o.Space == SpaceArena {
				held = held.with(o, dims)
			}
		}
	}
	return nil
}

// contents lists the values that an arena holds, ordered by offset.
type contents []content

type content struct {
	from, to int
	dtype    tensor.DType
}

// find returns the index of the first value that ends after byte at.
func (c contents) find(at int) int {
	i, _ := slices.BinarySearchFunc(c, at, func(x content, at int) int {
		if x.to <= at {
			return -1
		}
		return 1
	})
	return i
}

func (c contents) has(r Ref, dims []int) bool {
	n, i := r.Bytes(dims), c.find(r.Offset)
	return n == 0 || i < len(c) && c[i] == content{r.Offset, r.Offset + n, r.Stored()}
}

// with returns the contents after r is written over what it overlaps.
func (c contents) with(r Ref, dims []int) contents {
	n := r.Bytes(dims)
	if n == 0 {
		return c
	}
	i := c.find(r.Offset)
	j := i
	for j < len(c) && c[j].from < r.Offset+n {
		j++
	}
	return slices.Replace(c, i, j, content{r.Offset, r.Offset + n, r.Stored()})
}

func (p *Program) verifyLaunch(l *Launch, dims []int) error {
	for _, r := range slices.Concat(l.In, l.Out) {
		switch {
		case r.Store != tensor.Invalid && !Storable(r.Type, r.Store):
			return fmt.Errorf("%v: only f32 is stored in fewer bits, as bf16 or f16", r)
		case r.Space == SpaceArena && (r.Offset < 0 || r.Offset+r.Bytes(dims) > p.Arena):
			return fmt.Errorf("%v ends past the arena of %d bytes", r, p.Arena)
		case r.Space == SpaceArg && (r.Index < 0 || r.Index >= len(p.Args)):
			return fmt.Errorf("%v is not an argument", r)
		case r.Space == SpaceArg && (r.Offset < 0 || r.Offset+r.Bytes(dims) > p.Args[r.Index].Bytes(dims)):
			return fmt.Errorf("%v does not fit the argument %v%s", r, p.Args[r.Index].Type, as(p.Args[r.Index].Store))
		case r.Space == SpaceArg && r.Type.DType == p.Args[r.Index].Type.DType && r.Store != p.Args[r.Index].Store:
			return fmt.Errorf("%v: the argument is %v%s", r, p.Args[r.Index].Type, as(p.Args[r.Index].Store))
		}
	}
	outs, err := Def(l.Op).Infer(l.Attr, refTypes(l.In))
	if err != nil {
		return err
	}
	if len(outs) != len(l.Out) {
		return fmt.Errorf("%d outputs, expected %d", len(l.Out), len(outs))
	}
	for i, o := range l.Out {
		if !outs[i].Equal(o.Type) {
			return fmt.Errorf("output %d is %v, expected %v", i, o.Type, outs[i])
		}
		if o.Space == SpaceArg && !p.Args[o.Index].Written {
			return fmt.Errorf("output %d writes the argument %q, which is read only", i, p.Args[o.Index].Name)
		}
		over := -1
		if f := Def(l.Op).InPlace; f != nil {
			over = f(l.Attr, i)
		}
		for j, in := range l.In {
			if o.Overlaps(in, dims) && (j != over || o.Stored() != in.Stored()) {
				return fmt.Errorf("output %d %v lies over input %d %v", i, o, j, in)
			}
		}
		for j, other := range l.Out[:i] {
			if o.Overlaps(other, dims) {
				return fmt.Errorf("output %d %v lies over output %d %v", i, o, j, other)
			}
		}
	}
	return nil
}

// Same reports whether two values start at the same location.
func (r Ref) Same(o Ref) bool {
	return r.Space == o.Space && (r.Space != SpaceArg || r.Index == o.Index) && r.Offset == o.Offset
}

// Overlaps reports whether two values share memory at the sizes dims. Different arguments count as separate; a caller
// may pass one buffer for two of them only if neither is written.
func (r Ref) Overlaps(o Ref, dims []int) bool {
	if r.Space != o.Space || r.Space == SpaceArg && r.Index != o.Index {
		return false
	}
	return r.Offset < o.Offset+o.Bytes(dims) && o.Offset < r.Offset+r.Bytes(dims)
}

// Conflicts reports whether two launches must keep their order, because one of them writes a value that the other reads
// or writes.
func (l *Launch) Conflicts(o *Launch, dims []int) bool {
	return l.Overwrites(o, dims) || o.Overwrites(l, dims)
}

// Overwrites reports whether l writes a value that o reads or writes.
func (l *Launch) Overwrites(o *Launch, dims []int) bool {
	return slices.ContainsFunc(l.Out, func(x Ref) bool {
		over := func(y Ref) bool { return x.Overlaps(y, dims) }
		return slices.ContainsFunc(o.In, over) || slices.ContainsFunc(o.Out, over)
	})
}
