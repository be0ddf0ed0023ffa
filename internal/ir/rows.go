package ir

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/tensor"
)

// ScatterAttr holds the number of rows of the result of a ScatterAddRows.
type ScatterAttr struct{ Rows Dim }

// PhiloxAttr holds the shape of random words and the number of their random stream.
type PhiloxAttr struct {
	Stream uint32
	axes   axes
}

var _ = define(GatherRows, OpDef{Name: "GatherRows", Doc: "rows of a table [v,d] chosen by ids [...], as f32 [...,d]; every id must be at least 0 and below v",
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 2 {
			return nil, arity(2, in)
		}
		if in[0].Rank() != 2 || in[1].DType != tensor.I32 || !in[0].DType.IsFloat() && !in[0].DType.Foreign() {
			return nil, fmt.Errorf("expected a float table [v,d] and i32 ids")
		}
		if d := in[0].Shape[1]; in[0].DType.Foreign() && (d.Var != 0 || d.N%in[0].DType.BlockElements() != 0) {
			return nil, fmt.Errorf("%v: expected rows of whole blocks", in[0])
		}
		return []Type{f32(append(slices.Clone(in[1].Shape), in[0].Shape[1]))}, nil
	},
	Gradient: func(b *Backward) {
		if b.Needs(0) {
			n, vars := factors(b.InType(1).Shape)
			if vars.n > 1 {
				b.G.Fail(fmt.Errorf("GatherRows: no gradient by ids %v with two bounded axes", b.InType(1)))
				return
			}
			ids := Dim{n, vars.d[0].Var}
			dy := b.G.Reshape(b.Dy(0), Shape{ids, b.InType(0).Shape[1]})
			b.Acc(0, b.G.ScatterAddRows(dy, b.G.Reshape(b.In(1), Shape{ids}), b.InType(0).Shape[0]))
		}
	},
	Reference: func(_ any, in, outs []*Host) {
		d := in[0].Shape[1]
		for i, id := range in[1].Data {
			copy(outs[0].Data[i*d:i*d+d], in[0].Data[int(id)*d:])
		}
	},
	Reads: func(_ any, in, outs []Type, dims []int) int {
		rows := in[0].DType.Bytes(outs[0].Shape.Elements(dims)) // the table may be much larger than the rows that are read
		return rows + in[1].Bytes(dims)
	},
})

var _ = define(ScatterAddRows, OpDef{Name: "ScatterAddRows", Doc: "rows [n,d] added, in their order, into a table [rows,d] of zeros at ids [n]",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 2 {
			return nil, arity(2, in)
		}
		if in[0].Rank() != 2 || in[0].DType != tensor.F32 || !in[1].Equal(Type{tensor.I32, in[0].Shape[:1]}) {
			return nil, fmt.Errorf("expected f32 rows [n,d] and i32 ids [n]")
		}
		return []Type{f32(Shape{attr.(ScatterAttr).Rows, in[0].Shape[1]})}, nil
	},
	Gradient: func(b *Backward) {
		if b.Needs(0) {
			b.Acc(0, b.G.GatherRows(b.Dy(0), b.In(1)))
		}
	},
	Reference: func(_ any, in, outs []*Host) {
		d := in[0].Shape[1]
		for i, id := range in[1].Data {
			for j := range d {
				outs[0].Data[int(id)*d+j] += in[0].Data[i*d+j]
			}
		}
	},
	Flops: func(_ any, in, _ []Type, dims []int) int { return in[0].Shape.Elements(dims) },
})

var _ = define(UpdateRows, OpDef{Name: "UpdateRows", Doc: "a table [v,...] with rows [n,...] written over it from row offset[0] on; offset+n must not exceed v", NoGradient: true,
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 3 {
			return nil, arity(3, in)
		}
		if in[0].Rank() == 0 || in[0].DType != in[1].DType || in[0].Rank() != in[1].Rank() ||
			!slices.Equal(in[0].Shape[1:], in[1].Shape[1:]) || !in[2].Equal(Type{tensor.I32, ShapeOf(1)}) {
			return nil, fmt.Errorf("expected a table, rows like its own and one i32 offset")
		}
		return in[:1], nil
	},
	Reference: func(_ any, in, outs []*Host) {
		copy(outs[0].Data, in[0].Data)
		copy(outs[0].Data[int(in[2].Data[0])*product(in[0].Shape[1:]):], in[1].Data)
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return in[1].Shape.Elements(dims) },
	Reads:   readsRows,
	Writes:  writesRows,
	InPlace: func(any, int) int { return 0 },
})

var _ = define(Philox, OpDef{Name: "Philox", Doc: "random words by Philox4x32-10, a function of key {seed low, seed high, step}, stream and index; with a key and a number for each row, the words that the row of that number has in a value of its own", NoGradient: true,
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 1 {
			return nil, arity(1, in)
		}
		a := attr.(PhiloxAttr).axes
		if err := checkKey(in[0], a.shape()); err != nil {
			return nil, err
		}
		return []Type{{tensor.U32, a.shape()}}, a.check()
	},
	Reference: func(attr any, in, outs []*Host) {
		rows, keys, out := 1, in[0], outs[0].Data
		if len(keys.Shape) == 2 {
			rows = keys.Shape[0]
		}
		for r := range rows {
			key := keys.Data[len(keys.Data)/rows*r:]
			s := philox.NewStream(uint64(key[0])|uint64(key[1])<<32, uint32(key[2]), attr.(PhiloxAttr).Stream)
			cols, row := len(out)/rows, uint64(0)
			if len(keys.Shape) == 2 {
				row = uint64(key[3])
			}
			for c := range cols {
				out[r*cols+c] = float64(s.Word(row*uint64(cols) + uint64(c)))
			}
		}
	},
})

// RandomKey is the type of the key of random operations: the low and high word of the seed, and the step.
var RandomKey = Type{tensor.U32, ShapeOf(3)}

// RowKeys returns the type of a key per row, for n rows. A fourth word is the number of the row in its own run, so that
// rows of several runs in one batch draw the same numbers as each run alone.
func RowKeys(n Dim) Type { return Type{tensor.U32, Shape{n, Static(4)}} }

// checkKey returns an error unless key is a valid key type for a value of shape s.
func checkKey(key Type, s Shape) error {
	if key.Equal(RandomKey) || len(s) > 0 && key.Equal(RowKeys(s[0])) {
		return nil
	}
	rows := ""
	if len(s) > 0 {
		rows = fmt.Sprintf(" or, for each row, %v", RowKeys(s[0]))
	}
	return fmt.Errorf("expected a key %v%s, got %v", RandomKey, rows, key)
}

// GatherRows selects the rows ids of table.
func (g *Graph) GatherRows(table, ids Value) Value { return g.Apply(GatherRows, nil, table, ids) }

// ScatterAddRows adds the rows of x into a table of the given number of rows, initially zero.
func (g *Graph) ScatterAddRows(x, ids Value, rows Dim) Value {
	return g.Apply(ScatterAddRows, ScatterAttr{rows}, x, ids)
}

// UpdateRows overwrites rows of table, starting at row offset[0].
func (g *Graph) UpdateRows(table, rows, offset Value) Value {
	return g.Apply(UpdateRows, nil, table, rows, offset)
}

// Philox creates a value of shape s filled with random words.
func (g *Graph) Philox(key Value, stream uint32, s Shape) Value {
	return g.Apply(Philox, PhiloxAttr{stream, axesOf(s)}, key)
}

// readsRows and writesRows count the bytes of operations that write rows, operand 1, into a table, in place.
func readsRows(_ any, in, _ []Type, dims []int) int { return in[1].Bytes(dims) + in[2].Bytes(dims) }

func writesRows(_ any, in, _ []Type, dims []int) int { return in[1].Bytes(dims) }
