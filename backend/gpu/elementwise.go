package gpu

import (
	"math"
	"strings"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches run the kernels of files elementwise, cast and philox.

// numbers are the types that are computed with.
var numbers = map[tensor.DType]bool{tensor.F32: true, tensor.I32: true, tensor.U32: true}

func prepareConst(c *compiler, l *ir.Launch) (step, error) {
	x, out := l.Attr.(ir.ConstAttr).Value, l.Out[0]
	name, bits := "fill_b4", uint32(0)
	switch out.Type.DType {
	case tensor.F32:
		bits = math.Float32bits(float32(x))
	case tensor.I32:
		bits = uint32(int32(x))
	case tensor.U32:
		bits = uint32(x)
	case tensor.Bool:
		name, bits = "fill_b1", uint32(byte(x))
	default:
		return nil, unsupported("a constant of %v", out.Type.DType)
	}
	k, err := c.kernel("elementwise", name, elementThreads)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		n := r.count(out)
		k.elements(n).pointer("out", r.at(out)).int("value", int(bits)).long("n", n)
	}, nil
}

func prepareIota(c *compiler, l *ir.Launch) (step, error) {
	axis, out := l.Attr.(ir.IotaAttr).Axis, l.Out[0]
	k, err := c.kernel("elementwise", "iota_i32", elementThreads)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		n := r.count(out)
		_, count, inner := r.around(out, axis)
		k.elements(n).pointer("out", r.at(out)).long("n", n).long("inner", inner).long("count", count)
	}, nil
}

func preparePhilox(c *compiler, l *ir.Launch) (step, error) {
	stream, key, out := l.Attr.(ir.PhiloxAttr).Stream, l.In[0], l.Out[0]
	if key.Type.Rank() == 2 {
		k, err := c.kernel("philox", "philox_rows_u32", 256)
		if err != nil {
			return nil, err
		}
		return func(r *Run) {
			n := r.count(out)
			k.grid(blocks(n, 256), 1, 1).pointer("out", r.at(out)).pointer("keys", r.at(key)).long("n", n).long("cols", n/max(1, r.axis(out, 0))).int("stream", int(stream))
		}, nil
	}
	k, err := c.kernel("philox", "philox_u32", 256)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		n := r.count(out)
		k.grid(blocks(n, 4*256), 1, 1).pointer("out", r.at(out)).pointer("key", r.at(key)).long("n", n).int("stream", int(stream))
	}, nil
}

// castable holds the types that kernels cast to f32 and, except block types, from f32.
var castable = map[tensor.DType]bool{
	tensor.Bool: true, tensor.U8: true, tensor.I8: true, tensor.U16: true, tensor.I16: true, tensor.U32: true, tensor.I32: true,
	tensor.U64: true, tensor.I64: true, tensor.BF16: true, tensor.F16: true, tensor.F64: true,
	tensor.F8E5M2: true, tensor.F8E4M3: true,
	tensor.Q8: true, tensor.NF4: true, tensor.FP4: true,
}

// suffix returns the element type as it appears in kernel names.
func suffix(d tensor.DType) string { return strings.ToLower(d.String()) }

func prepareCast(c *compiler, l *ir.Launch) (step, error) {
	in, out := l.In[0], l.Out[0]
	from, to := in.Type.DType, out.Type.DType
	switch {
	case from == to:
		return prepareCopy(c, l)
	case to == tensor.F32 && castable[from], from == tensor.F32 && castable[to]:
	default:
		return nil, unsupported("a cast from %v to %v", from, to)
	}
	return c.eachElement("cast", "cast_"+suffix(from)+"_"+suffix(to), out, in)
}

func prepareDequantize(c *compiler, l *ir.Launch) (step, error) {
	a, w, scale, out := l.Attr.(ir.DequantizeAttr), l.In[0], l.In[1], l.Out[0]
	k, err := c.kernel("cast", "dequantize_f8_e4m3_f32", elementThreads)
	if err != nil {
		return nil, err
	}
	s := w.Type.Shape
	rows, columns := s[len(s)-2].N, s[len(s)-1].N
	return func(r *Run) {
		k.grid(s[:len(s)-1].Elements(r.Dims), blocks(columns, rowBlock), 1).pointer("out", r.at(out)).pointer("x", r.at(w)).pointer("scale", r.at(scale))
		k.int("rows", rows).int("cols", columns).int("block_rows", a.Rows).int("block_cols", a.Columns)
	}, nil
}

func prepareUnary(c *compiler, l *ir.Launch) (step, error) {
	in, out, fn := l.In[0], l.Out[0], l.Attr.(ir.UnaryAttr).Fn
	if in.Type.DType != tensor.F32 {
		return nil, unsupported("%v of %v", fn, in.Type.DType)
	}
	return c.eachElement("elementwise", "unary_"+strings.ToLower(fn.String())+form(narrow(out, in)), out, in)
}

// eachElement runs a kernel that makes each element of out from that of x.
func (c *compiler) eachElement(file, name string, out, x ir.Ref) (step, error) {
	k, err := c.kernel(file, name, elementThreads)
	if err != nil {
		return nil, err
	}
	stored := narrow(out, x)
	return func(r *Run) {
		n := r.count(out)
		k.elements(n).pointer("out", r.at(out)).pointer("x", r.at(x)).long("n", n).stored(stored)
	}, nil
}

func prepareBinary(c *compiler, l *ir.Launch) (step, error) {
	return preparePair(c, l, "binary_"+strings.ToLower(l.Attr.(ir.BinaryAttr).Fn.String()))
}

func prepareCompare(c *compiler, l *ir.Launch) (step, error) {
	return preparePair(c, l, "compare_"+strings.ToLower(l.Attr.(ir.CompareAttr).Fn.String()))
}

// preparePair is for functions of two elements, each of which may be repeated.
func preparePair(c *compiler, l *ir.Launch, name string) (step, error) {
	x, y, out := l.In[0], l.In[1], l.Out[0]
	if !numbers[x.Type.DType] {
		return nil, unsupported("%s of %v", name, x.Type.DType)
	}
	stored := narrow(out, x, y)
	if stored != 0 {
		name += form(stored)
	} else {
		name += "_" + suffix(x.Type.DType)
	}
	k, err := c.kernel("elementwise", name, elementThreads)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		s := r.over(out)
		s.repeated(r, x)
		s.repeated(r, y)
		s.join()
		k.elements(s.count()).pointer("out", r.at(out)).pointer("x", r.at(x)).pointer("y", r.at(y)).walk(&s, &pairStrides)
		k.stored(stored)
	}, nil
}

func prepareWhere(c *compiler, l *ir.Launch) (step, error) {
	cond, x, y, out := l.In[0], l.In[1], l.In[2], l.Out[0]
	name := map[int]string{4: "where_b4", 1: "where_b1"}[out.Type.DType.Size()]
	if name == "" {
		return nil, unsupported("a choice of %v", out.Type.DType)
	}
	k, err := c.kernel("elementwise", name, elementThreads)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		s := r.over(out)
		s.repeated(r, cond)
		s.repeated(r, x)
		s.repeated(r, y)
		s.join()
		k.elements(s.count()).pointer("out", r.at(out)).pointer("c", r.at(cond)).pointer("x", r.at(x)).pointer("y", r.at(y)).walk(&s, &whereStrides)
	}, nil
}
