package gpu

// The launches here are those of kernels/cuda/gemm_mma.cu: all products of a sum
// at once, by the tensor cores.

const (
	// A tile of 128 by 128 feeds the tensor cores best, if there are tiles enough
	// for every multiprocessor; else tiles are of 64 by 64.
	largeTile, smallTile = 128, 64
	enoughTiles          = 108
)

type mma struct {
	t                 terms
	large, small, sum *Kernel
}

func newMMA(c *compiler, t terms) (product, error) {
	p := &mma{t: t}
	var err error
	if p.large, err = c.kernel("gemm_mma", "gemm_mma_128", 256); err != nil {
		return nil, err
	}
	if p.small, err = c.kernel("gemm_mma", "gemm_mma_64", 128); err != nil {
		return nil, err
	}
	if p.sum, err = c.kernel("gemm_mma", "gemm_sum", 256); err != nil {
		return nil, err
	}
	for _, k := range []struct {
		*Kernel
		tile int
	}{{p.large, largeTile}, {p.small, smallTile}} {
		if err := c.share(k.Kernel, stagesBytes(k.tile)); err != nil {
			return nil, err
		}
	}
	m, n, batch := t.sizes(c.dims)
	c.reserve(partial(m*n*batch, p.stages(c.dims)))
	return p, nil
}

// stagesBytes is the shared memory of tiles of a side: three stages of both
// operands in bfloat16, and the books of 4-bit types.
func stagesBytes(side int) int { return 3*2*side*stageK*2 + 2*16*4 }

func (p *mma) stages(dims []int) int {
	n := 0
	for i := range p.t.list {
		n += blocks(p.t.list[i].k(dims), stageK)
	}
	return n
}

func (p *mma) skip() {
	p.large.skip()
	p.small.skip()
	p.sum.skip()
}

func (p *mma) fill(r *Run) {
	p.skip()
	m, n, batch := p.t.sizes(r.Dims)
	k, tile := p.small, smallTile
	if m > smallTile && n > smallTile && blocks(m, largeTile)*blocks(n, largeTile)*batch >= enoughTiles {
		k, tile = p.large, largeTile
	}
	down, across, parts := blocks(m, tile), blocks(n, tile), 1
	if tile == smallTile {
		parts = partsOf(down*across*batch, p.stages(r.Dims))
	}
	out := r.at(p.t.out)
	bias, addend := p.t.edges(r)
	k.grid(down*across*batch*parts, 1, 1).pointer("out", out).pointer("partial", r.Scratch).pointer("bias", bias).pointer("addend", addend)
	k.int("m", m).int("n", n).int("tiles_m", down).int("tiles_n", across).int("parts", parts)
	p.t.add(r, k)
	if parts > 1 {
		sumParts(p.sum, r, p.t.out, m*n, n, batch, parts).pointer("bias", bias).pointer("addend", addend)
	}
}
