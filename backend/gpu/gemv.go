package gpu

// These launches run the kernels of kernels/cuda/gemv.cu, which compute all products of a sum for few rows in float32.

const (
	vectorRows = 8 // the most rows that go this way
	vectorCols = 4 // columns of a block
)

type vector struct {
	t       terms
	kernels [4]*Kernel // for 1, 2, 4 and 8 rows; nil for numbers that there never are
}

func newVector(c *compiler, t terms) (product, error) {
	p := &vector{t: t}
	least, most := t.rows(c.dims)
	for i, name := range []string{"gemv_1", "gemv_2", "gemv_4", "gemv_8"} {
		if i < vectorKernel(least) || i > vectorKernel(min(most, vectorRows)) {
			continue
		}
		var err error
		if p.kernels[i], err = c.kernel("gemv", name, 128); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// vectorKernel returns the index of the kernel for m rows.
func vectorKernel(m int) (i int) {
	for 1<<i < m {
		i++
	}
	return i
}

func (p *vector) skip() {
	for _, k := range p.kernels {
		if k != nil {
			k.skip()
		}
	}
}

func (p *vector) fill(r *Run) {
	p.skip()
	m, n, _ := p.t.sizes(r.Dims)
	bias, addend := p.t.edges(r)
	k := p.kernels[vectorKernel(m)]
	k.grid(blocks(n, vectorCols), min(m, 1), 1).pointer("out", r.at(p.t.out)).pointer("bias", bias).pointer("addend", addend).int("m", m).int("n", n)
	p.t.add(r, k)
}
