package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/vec"
	"github.com/lorafuse/lorafuse/tensor"
)

const (
	winogradChannels = 48      // that images and results have at least: with fewer, nine products are as fast and more exact
	winogradPixels   = 256     // of a result, the same
	winogradFloats   = 4 << 20 // about how many of transformed tiles there are at a time
	winogradPart     = 2048    // floats of an element of the tiles that one task takes
)

// winograd is a convolution of 3 by 3 with less than half of the multiplications: F(2×2,
// 3×3) of Lavin and Gray 2015, arXiv 1509.09308. A tile of 2 by 2 pixels of the result
// sees 4 by 4 of the image. With d such a tile, g a window of the weight, and
//
//	     1 0 −1  0        1  0 0         1 1  1  0
//	Bᵀ = 0 1  1  0    G = ½  ½ ½    Aᵀ = 0 1 −1 −1
//	     0 −1 1  0        ½ −½ ½
//	     0 1  0 −1        0  0 1
//
// the tile of the result is Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A, summed over channels within the
// brackets: one product of matrices for each of the 16 elements, with a row for each tile.
type winograd struct {
	*conv2D
	high, wide  int // tiles of an image
	parts, part int // tasks of a row of tiles, and tiles of each
	rows        int // of tiles that are transformed at a time
	calls       [16]gemm.Call
	list        []*gemm.Call

	zeros    []float32     // a row of an image
	weight   []float32     // f32 [out,3,3,c], of a weight in fewer bits
	filters  [16][]float32 // of the weight [out,c]
	tiles    [16][]float32 // of the image [tiles,c]
	sums     [16][]float32 // of the result [tiles,out]
	between  []float32     // rows of tiles whose columns are not transformed yet: 4 per task
	result   []float32     // of the image under way
	row, now int           // the first row of tiles that is transformed, and how many

	transformWeight, transformTiles, transformSums func(lo, hi int)
}

// fewer reports whether a convolution is 3 by 3 and faster by Winograd tiles. Tiles are not used if multiplications
// round their operands, which would then be sums of pixels.
func (p *conv2D) fewer() bool {
	return p.kh == 3 && p.kw == 3 && p.a.Stride == 1 && min(p.c, p.out) >= winogradChannels && p.oh*p.ow >= winogradPixels && !p.r.dev.gemm.Rounds()
}

func newWinograd(p *conv2D) *winograd {
	w := &winograd{conv2D: p, high: (p.oh + 1) / 2, wide: (p.ow + 1) / 2}
	w.part = min(w.wide, max(4, winogradPart/max(p.c, p.out)))
	w.parts = (w.wide + w.part - 1) / w.part
	w.rows = max(1, min(w.high, winogradFloats/(16*w.wide*(p.c+p.out))))
	w.list = make([]*gemm.Call, 16)
	for i := range w.calls {
		pair := gemm.Pair{A: gemm.Matrix{Stride: p.c}, B: gemm.Matrix{Stride: p.c, Trans: true}, K: p.c, Alpha: 1}
		w.calls[i] = gemm.Call{M: w.rows * w.wide, N: p.out, LDC: p.out, Pairs: []gemm.Pair{pair}}
		w.list[i] = &w.calls[i]
	}
	p.r.need.products = p.r.need.products.With(p.r.dev.gemm.NeedAll(w.list))
	n := 0
	w.divide(func(floats int) []float32 { n += floats; return nil })
	p.r.reserve(n)
	w.transformWeight, w.transformTiles, w.transformSums = w.weightRows, w.tilesOf, w.resultOf
	return w
}

// divide allocates the memory in addition to the arena.
func (p *winograd) divide(take func(floats int) []float32) {
	p.zeros = take(p.w * p.c)
	p.between = take(max(p.rows*p.parts*p.betweenFloats(), p.out*p.c))
	if p.l.In[1].Type.DType != tensor.F32 {
		p.weight = take(p.out * 9 * p.c)
	}
	for i := range 16 {
		p.filters[i] = take(p.out * p.c)
		p.tiles[i] = take(p.rows * p.wide * p.c)
		p.sums[i] = take(p.rows * p.wide * p.out)
	}
}

// betweenFloats returns the memory in floats that a task needs for four rows of its tiles.
func (p *winograd) betweenFloats() int { return 4 * (2*p.part + 2) * p.c }

func (p *winograd) run() error {
	r := p.r
	p.begin()
	free := r.scratch
	p.divide(func(floats int) (x []float32) {
		x, free = free[:floats:floats], free[floats:]
		return x
	})
	clear(p.zeros)
	if p.l.In[1].Type.DType == tensor.F32 {
		p.weight = r.f32(p.l.In[1])
	}
	r.rows(p.out, 16*p.c, p.transformWeight)
	x, y := r.f32(p.l.In[0]), r.f32(p.l.Out[0])
	size, results := p.h*p.w*p.c, p.oh*p.ow*p.out
	for ; len(x) >= size && len(y) > 0; x, y = x[size:], y[results:] {
		p.image, p.result = x[:size], y[:results]
		for p.row = 0; p.row < p.high; p.row += p.now {
			p.now = min(p.rows, p.high-p.row)
			r.spread(p.now*p.parts, 1, p.transformTiles)
			p.multiply()
			r.spread(p.now*p.parts, 1, p.transformSums)
		}
	}
	return nil
}

// multiply computes the product of each element of the tiles. The bias is that of an
// element that all pixels of a tile of the result have once.
func (p *winograd) multiply() {
	for i := range p.calls {
		c := &p.calls[i]
		c.M, c.C = p.now*p.wide, p.sums[i]
		c.Pairs[0].A, c.Pairs[0].B = gemm.Of(p.tiles[i], p.c), gemm.Of(p.filters[i], p.c).T()
	}
	p.calls[5].Bias = p.call.Bias
	p.r.multiplyAll(p.list)
}

// weightRows makes filters of rows of the weight.
func (p *winograd) weightRows(lo, hi int) {
	c := p.c
	for o := lo; o < hi; o++ {
		at := func(row, column int) []float32 { return p.filters[4*row+column][o*c:][:c] }
		g, sum := p.weight[9*o*c:][:9*c], p.between[o*c:][:c]
		if in := p.l.In[1]; in.Type.DType != tensor.F32 {
			size := 9 * c * in.Type.DType.Size()
			_ = tensor.ToFloat32(g, p.r.bytes(in)[o*size:][:size], in.Type.DType) // lengths fit
		}
		for k, column := range [...]int{0, 1, 3} {
			above, middle, below := g[k*c:][:c], g[(3+k)*c:][:c], g[(6+k)*c:][:c]
			copy(at(0, column), above)
			copy(at(3, column), below)
			halves(at(1, column), at(2, column), above, middle, below, sum)
		}
		for row := range 4 {
			halves(at(row, 1), at(row, 2), at(row, 0), at(row, 1), at(row, 3), sum)
		}
	}
}

// halves sets plus = (x+y+z)/2 and minus = (x−y+z)/2; plus may be y.
func halves(plus, minus, x, y, z, sum []float32) {
	vec.Add(sum, x, z)
	vec.Sub(minus, sum, y)
	vec.Add(plus, sum, y)
	vec.Scale(minus, 0.5, minus)
	vec.Scale(plus, 0.5, plus)
}

// tilesOfTask returns the row of tiles of a task, relative to p.row, and the range of its tiles.
func (p *winograd) tilesOfTask(task int) (row, from, to int) {
	row, from = task/p.parts, task%p.parts*p.part
	return row, from, min(p.wide, from+p.part)
}

// tilesOf transforms tiles of the image.
func (p *winograd) tilesOf(lo, hi int) {
	c := p.c
	for task := lo; task < hi; task++ {
		row, from, to := p.tilesOfTask(task)
		rows := p.between[task*p.betweenFloats():][:p.betweenFloats()]
		pixels := (2*(to-from) + 2) * c
		p.transformRows(rows, row, from, pixels)
		for i := range 4 {
			pixel := rows[i*pixels:][:pixels]
			for t := from; t < to; t++ {
				x0, x1, x2, x3 := pixel[:c], pixel[c:2*c], pixel[2*c:3*c], pixel[3*c:4*c]
				pixel = pixel[2*c:]
				at := (row*p.wide + t) * c
				vec.Sub(p.tiles[4*i][at:at+c], x0, x2)
				vec.Add(p.tiles[4*i+1][at:at+c], x1, x2)
				vec.Sub(p.tiles[4*i+2][at:at+c], x2, x1)
				vec.Sub(p.tiles[4*i+3][at:at+c], x1, x3)
			}
		}
	}
}

// transformRows is Bᵀ of the rows that a row of tiles sees, from one tile on.
func (p *winograd) transformRows(dst []float32, row, tile, pixels int) {
	// Clip the tile to the image, in elements of a row of dst.
	shift := (2*tile - p.a.Left) * p.c
	lo := min(max(0, -shift), pixels)
	hi := max(lo, min(pixels, p.w*p.c-shift))
	var x [4][]float32
	for i := range x {
		y := 2*(p.row+row) + i - p.a.Top
		x[i] = p.zeros
		if y >= 0 && y < p.h {
			x[i] = p.image[y*p.w*p.c:][:p.w*p.c]
		}
		x[i] = x[i][max(0, min(lo+shift, p.w*p.c)):]
		to := dst[i*pixels:][:pixels]
		clear(to[:lo])
		clear(to[hi:])
	}
	to := func(i int) []float32 { return dst[i*pixels+lo : i*pixels+hi] }
	vec.Sub(to(0), x[0], x[2])
	vec.Add(to(1), x[1], x[2])
	vec.Sub(to(2), x[2], x[1])
	vec.Sub(to(3), x[1], x[3])
}

// resultOf makes pixels of the sums of tiles, in whose place it adds up.
func (p *winograd) resultOf(lo, hi int) {
	n := p.out
	for task := lo; task < hi; task++ {
		row, from, to := p.tilesOfTask(task)
		var m [16][]float32
		for i := range m {
			m[i] = p.sums[i][(row*p.wide+from)*n:][:(to-from)*n]
		}
		for j := range 4 {
			addUp(m[j], m[4+j], m[8+j], m[12+j])
		}
		for i := range 2 {
			y := 2*(p.row+row) + i
			if y >= p.oh {
				break
			}
			a := m[4*i:][:4]
			vec.Add(a[0], a[0], a[1])
			vec.Sub(a[1], a[1], a[2])
			pixels := p.result[y*p.ow*n:][:p.ow*n]
			for t := from; t < to; t++ {
				at := (t - from) * n
				vec.Add(pixels[2*t*n:][:n], a[0][at:], a[2][at:])
				if 2*t+1 < p.ow {
					vec.Sub(pixels[(2*t+1)*n:][:n], a[1][at:], a[3][at:])
				}
			}
		}
	}
}

// addUp is Aᵀ of a column of four: it is left in the first two.
func addUp(a, b, c, d []float32) {
	vec.Add(a, a, b)
	vec.Add(a, a, c)
	vec.Sub(b, b, c)
	vec.Sub(b, b, d)
}
