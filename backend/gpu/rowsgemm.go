package gpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches run the kernels of kernels/cuda/rows_gemm.cu: a product that selects its matrix by row.

const (
	rowsTile, rowsCols = 4, 16 // rows and columns of a block
	rowsTables         = 8     // matrices of a launch
)

// tableKinds holds the kernel's codes for the types of the matrices.
var tableKinds = map[tensor.DType]int{tensor.F32: 0, tensor.F16: 1, tensor.BF16: 2}

// takesRows reports whether the kernels support the matrix types of a RowsGemm and its matrices are transposed (TB).
func takesRows(attr any, in []ir.Type) bool {
	a := attr.(ir.RowsGemmAttr)
	for _, w := range in[2 : 2+max(1, a.Tables)] {
		if _, ok := tableKinds[w.DType]; !ok {
			return false
		}
	}
	return a.TB
}

// The parameters of tables are numbered.
var tableW, tableReads, tableGives, tableKind = numbered("w"), numbered("reads"), numbered("gives"), numbered("kind")

// rowsGemm is a RowsGemm launch, with one kernel for every eight matrices, or one for all if they are stacked.
type rowsGemm struct {
	l        *ir.Launch
	a        ir.RowsGemmAttr
	kernels  []*Kernel
	tables   []rowsTable
	matrices int
	launch   int
}

type rowsTable struct {
	w                  ir.Ref
	reads, gives, kind int
}

func prepareRows(c *compiler, l *ir.Launch) (step, error) {
	p := &rowsGemm{l: l, a: l.Attr.(ir.RowsGemmAttr), launch: c.launch}
	var types []ir.Type
	for _, v := range l.In {
		types = append(types, v.Type)
	}
	p.matrices = p.a.Matrices(types, 2)
	for e := range max(1, p.a.Tables) {
		w := l.In[2+e]
		reads, gives := p.a.Size(types, 2, e)
		p.tables = append(p.tables, rowsTable{w, reads, gives, tableKinds[w.Type.DType]})
	}
	for range blocks(len(p.tables), rowsTables) {
		k, err := c.kernel("rows_gemm", "rows_gemm", 128)
		if err != nil {
			return nil, err
		}
		p.kernels = append(p.kernels, k)
	}
	c.refuse(func(_ *Run, where, value int) error {
		return fmt.Errorf("index %d at %d, there are %d matrices", value, where, p.matrices)
	})
	return p.fill, nil
}

func (p *rowsGemm) fill(r *Run) {
	at := func(input int) Pointer {
		if input < 0 {
			return 0
		}
		return r.at(p.l.In[input])
	}
	n, width := r.count(p.l.In[1]), p.a.Width
	for i, k := range p.kernels {
		first := i * rowsTables
		own := p.tables[first:min(first+rowsTables, len(p.tables))]
		tables, step := len(own), 0
		if p.a.Tables == 0 {
			tables, step = p.matrices, own[0].reads*own[0].gives*own[0].w.Type.DType.Size()
		}
		k.grid(blocks(n, rowsTile)*blocks(width, rowsCols), 1, 1).pointer("out", r.at(p.l.Out[0])).pointer("x", at(0)).pointer("index", at(1))
		k.pointer("scale", at(p.a.Scale(2))).pointer("bias", at(p.a.Bias())).pointer("addend", at(p.a.C()))
		k.int("n", n).int("k", r.axis(p.l.In[0], 1)).int("width", width).int("matrices", p.matrices).int("first", first).int("tables", tables).long("step", step)
		for j := range rowsTables {
			var t rowsTable
			var w Pointer
			if j < len(own) {
				t, w = own[j], r.at(own[j].w)
			}
			k.pointer(tableW[j], w).int(tableReads[j], t.reads).int(tableGives[j], t.gives).int(tableKind[j], t.kind)
		}
		k.pointer("trap", r.Trap).int("launch", p.launch)
	}
}
