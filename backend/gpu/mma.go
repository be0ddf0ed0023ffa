package gpu

import "github.com/lorafuse/lorafuse/backend"

// These launches run the kernels of kernels/cuda/gemm_mma.cu, which compute all products of a sum at once on tensor
// cores or their equivalent on other devices.

// A tile of 128 by 128 feeds the tensor cores best, if there are enough tiles for every multiprocessor; see
// Thresholds.LargeTiles.
const largeTile, smallTile = 128, 64

type mma struct {
	t                 terms
	large, small, sum *Kernel // large is nil if large tiles are never used
	enough            int     // large tiles
}

func newMMA(c *compiler, t terms) (*mma, error) {
	p := &mma{t: t, enough: c.target.LargeTiles}
	var err error
	if p.enough > 0 {
		if p.large, err = c.tile("gemm_mma_128", 256, largeTile); err != nil {
			return nil, err
		}
	}
	small := "gemm_mma_64"
	if c.target.Precision != backend.BF16 {
		small = "gemm_mma_f32_64"
	}
	if p.small, err = c.tile(small, 128, smallTile); err != nil {
		return nil, err
	}
	if p.sum, err = c.kernel("gemm_mma", "gemm_sum", 256); err != nil {
		return nil, err
	}
	m, n, batch := t.sizes(c.dims)
	c.reserve(partial(m*n*batch, p.stages(c.dims)))
	return p, nil
}

// tile returns a kernel of gemm_mma.cu for tiles of the given side.
func (c *compiler) tile(name string, threads, side int) (*Kernel, error) {
	return c.sharing("gemm_mma", name, threads, stagesBytes(side))
}

// stagesBytes returns the shared memory for tiles of the given side: three stages of both operands in bfloat16, and
// the code books of 4-bit types.
func stagesBytes(side int) int { return 3*2*side*stageK*2 + 2*16*4 }

func (p *mma) stages(dims []int) int {
	n := 0
	for i := range p.t.list {
		n += blocks(p.t.list[i].k(dims), stageK)
	}
	return n
}

func (p *mma) skip() {
	if p.large != nil {
		p.large.skip()
	}
	p.small.skip()
	p.sum.skip()
}

func (p *mma) fill(r *Run) {
	p.skip()
	m, n, batch := p.t.sizes(r.Dims)
	k, tile := p.small, smallTile
	if p.large != nil && m > smallTile && n > smallTile && blocks(m, largeTile)*blocks(n, largeTile)*batch >= p.enough {
		k, tile = p.large, largeTile
	}
	down, across, parts := blocks(m, tile), blocks(n, tile), 1
	if tile == smallTile {
		parts = partsOf(down*across*batch, p.stages(r.Dims))
	}
	out := r.at(p.t.out)
	bias, addend := p.t.edges(r)
	k.grid(down*across*batch*parts, 1, 1).pointer("out", out).pointer("partial", r.Scratch).pointer("bias", bias).pointer("addend", addend)
	k.int("m", m).int("n", n).int("tiles_m", down).int("tiles_n", across).int("parts", parts).int("stored", p.t.stored())
	p.t.add(r, k)
	if parts > 1 {
		sumParts(p.sum, r, p.t.out, m*n, n, batch, parts, p.t.stored()).pointer("bias", bias).pointer("addend", addend)
	}
}

// separate is a sum of products whose factors differ too much for one accumulator. Each product has its own launch,
// and each after the first adds to the output.
type separate []*mma

func newSeparate(c *compiler, t terms) (product, error) {
	if t.stored() != 0 {
		return nil, unsupported("a sum of separate products that is stored as bfloat16")
	}
	list := make(separate, len(t.list))
	for i := range list {
		one := t
		one.list = t.list[i : i+1]
		if i > 0 {
			one.hasBias, one.hasC, one.addend = false, true, t.out
		}
		var err error
		if list[i], err = newMMA(c, one); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s separate) fill(r *Run) {
	for _, p := range s {
		p.fill(r)
	}
}

func (s separate) skip() {
	for _, p := range s {
		p.skip()
	}
}
