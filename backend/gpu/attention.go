package gpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches run the kernels of attention, attention_grad and attention_decode in kernels/cuda and kernels/metal.

// attentionTile describes the kernels for heads of up to size elements: how many
// queries and keys a block has at a time.
type attentionTile struct {
	size           int
	queries, keys  int // forward
	queries1, key1 int // for dq
	queries2, key2 int // for dk and dv
}

// Sizes of the CUDA kernels. They equal the macros at the end of each kernel. Together with the number of queries and
// keys, they alone determine the order of summation.
var (
	exactTiles = []attentionTile{
		{32, 64, 64, 64, 32, 32, 64},
		{64, 64, 64, 64, 32, 32, 64},
		{96, 64, 32, 32, 32, 32, 32},
		{128, 64, 32, 32, 32, 32, 32},
		{256, 32, 16, 16, 16, 16, 16},
	}
	roundedTiles = []attentionTile{
		{32, 128, 64, 64, 64, 64, 64},
		{64, 128, 64, 64, 64, 64, 64},
		{96, 128, 32, 64, 32, 32, 64},
		{128, 128, 32, 64, 32, 32, 64},
		{256, 64, 32, 64, 16, 16, 64},
	}
	decodeSizes = []int{32, 64, 128, 256, 512}
)

const (
	largestHead    = 256 // the largest head size of the kernels for blocks and tiles of queries
	largestDecoded = 512 // the largest head size of attention_decode
)

const (
	decodeKeys   = 256     // of a round of a block
	decodeChunk  = 128     // keys; chunks are multiples of it
	decodeChunks = 32      // at most, for each query
	decodeParts  = 1 << 14 // of all queries, with more queries each has fewer chunks
	decodeBlocks = 2048    // fill a GPU; with more, each block processes several chunks
	decodeRows   = 16      // of a block of attention_queries, at most: pairs of a query and a head
	gradBlocks   = 256     // of dk and dv, below which the heads of a group are divided
)

func takesAttention(attr any, _ []ir.Type) bool {
	a := attr.(ir.AttentionAttr)
	return a.HeadDim <= largestHead || a.HeadDim <= largestDecoded && !isPlain(a)
}

func takesAttentionGrad(attr any, in []ir.Type) bool {
	return takesAttention(attr, in) && isPlain(attr.(ir.AttentionAttr))
}

func storesAttention(_ any, _ []ir.Type, at ir.Place) bool {
	return at.Index == 0 || !at.Out && at.Index < 3 // o; q, k and v
}

func storesAttentionGrad(_ any, _ []ir.Type, at ir.Place) bool {
	return at.Out || at.Index < 5 // dq, dk and dv; do, q, k, v and o
}

// Positions of operands in the arguments bf16 and vec of the kernels, which have a bit for each of them.
const (
	operandQ = iota
	operandK
	operandV
	operandO
	operandDO
	operandDQ
	operandDK
	operandDV
	operandCount
)

// isPlain reports whether scores are products of queries and keys, and keys are consecutive.
func isPlain(a ir.AttentionAttr) bool { return a.Page == 0 && a.SoftCap == 0 && a.Bias == ir.NoBias }

// attention is the common part of launches of attention and of its gradient.
type attention struct {
	ir.AttentionAttr
	tile    attentionTile
	rounded bool
	square  bool // the tile is Sizes.AttentionTile
	lo, hi  ir.Ref
	q, k    ir.Ref
	pages   ir.Ref                // if Page is positive
	values  [operandCount]*ir.Ref // nil if the launch has no such operand
	bf16    int                   // bits of values that are stored as bf16
	launch  int
	decodes int // queries, at most
}

func (c *compiler) attention(l *ir.Launch) *attention {
	a := &attention{AttentionAttr: l.Attr.(ir.AttentionAttr), rounded: c.target.Precision == backend.BF16, launch: c.launch, decodes: c.target.DecodeQueries}
	if in, out := l.In, l.Out; l.Op == ir.Attention {
		a.values = [operandCount]*ir.Ref{operandQ: &in[0], operandK: &in[1], operandV: &in[2], operandO: &out[0]}
		a.lo, a.hi = in[3], in[4]
	} else {
		a.values = [operandCount]*ir.Ref{&in[1], &in[2], &in[3], &in[4], &in[0], &out[0], &out[1], &out[2]}
		a.lo, a.hi = in[6], in[7]
	}
	a.q, a.k = *a.values[operandQ], *a.values[operandK]
	for i, v := range a.values {
		a.bf16 |= bit(v != nil && v.Stored() == tensor.BF16) << i
	}
	tiles := exactTiles
	if a.rounded {
		tiles = roundedTiles
	}
	for i := range tiles {
		if a.tile = tiles[i]; a.HeadDim <= a.tile.size {
			break
		}
	}
	if n := c.target.AttentionTile; n > 0 {
		a.square, a.tile = true, attentionTile{a.tile.size, n, n, n, n, n, n}
	}
	if a.Page > 0 {
		a.pages = l.In[5]
	}
	c.refuse(func(r *Run, where, value int) error {
		if where < 0 {
			return fmt.Errorf("page %d at %d, the cache has %d pages", value, -1-where, r.axis(a.k, 0)/a.Page)
		}
		return fmt.Errorf("query %d has an interval outside of the %d keys", where, a.keys(r))
	})
	return a
}

func (a *attention) group() int { return a.Heads / a.KVHeads }

// name returns the name of a kernel for this head size and precision.
func (a *attention) name(kernel string) string {
	precision := "f32"
	if a.rounded {
		precision = "bf16"
	}
	return fmt.Sprintf("attention_%s%s_%d", kernel, precision, a.tile.size)
}

// threads returns the number of threads per block of these kernels.
func (a *attention) threads() int {
	if a.rounded && !a.square {
		return 128
	}
	return 256
}

// row returns the shared-memory length of a tile row. It is slightly longer than a head, so that rows start in
// different banks.
func (a *attention) row() int {
	if a.rounded {
		return 2 * (a.tile.size + 8)
	}
	return 4 * (a.tile.size + 4)
}

// scores returns the shared memory for a matrix of scores. The bfloat16 kernels keep scores in registers instead.
func (a *attention) scores(rows, cols int) int {
	if a.rounded {
		return 0
	}
	return 4 * rows * (cols + 4)
}

// kernel returns a kernel for this head size and precision, with the given amount of shared memory.
func (a *attention) kernel(c *compiler, image, name string, shared int) (*Kernel, error) {
	return c.sharing(image, a.name(name), a.threads(), shared)
}

// intervals adds the parameters lo, hi and the numbers of queries and keys.
func (a *attention) intervals(r *Run, k *Kernel) *Kernel {
	return k.pointer("lo", r.at(a.lo)).pointer("hi", r.at(a.hi)).int("n", r.axis(a.q, 0)).int("keys", a.keys(r))
}

// keys returns the number of keys that intervals count.
func (a *attention) keys(r *Run) int {
	if a.Page > 0 && r.axis(a.k, 0) > 0 {
		return a.Page * r.axis(a.pages, 0)
	}
	return r.axis(a.k, 0)
}

// vectors returns 1 if all pointers to float32, and so all heads, are aligned for 16-byte loads.
func (a *attention) vectors(p ...Pointer) int {
	if a.HeadDim%4 != 0 {
		return 0
	}
	for _, at := range p {
		if at%16 != 0 {
			return 0
		}
	}
	return 1
}

// vec returns the bits of the operands whose heads are aligned to 16 bytes.
func (a *attention) vec(r *Run) (bits int) {
	for i, v := range a.values {
		bits |= bit(v != nil && a.HeadDim*v.Stored().Size()%16 == 0 && r.at(*v)%16 == 0) << i
	}
	return bits
}

// attentionPack is a kernel that makes bfloat16 copies in the scratch memory of up to two matrices with the same number of
// heads. Matrices that are stored as bf16 need no copy.
type attentionPack struct {
	kernel   *Kernel // nil if there is nothing to pack
	operands [2]int
	at       [2]int // offsets of the copies
	n        int
	heads    int
}

// pack plans the copies of operands with the given number of heads.
func (a *attention) pack(c *compiler, s *area, heads int, operands ...int) (p attentionPack, err error) {
	p.heads = heads
	for _, i := range operands {
		if v := *a.values[i]; a.rounded && v.Stored() != tensor.BF16 {
			p.operands[p.n], p.at[p.n] = i, s.take(2*c.axisMax(v)*heads*a.tile.size)
			p.n++
		}
	}
	if p.n > 0 {
		p.kernel, err = c.kernel("attention", "attention_pack_bf16", 256)
	}
	return p, err
}

// skip disables the kernel in this run.
func (p *attentionPack) skip() {
	if p.kernel != nil {
		p.kernel.skip()
	}
}

// fill sets the arguments of the kernel. It replaces the addresses of copied operands in from, and sets their bits in
// vec, since copies are aligned.
func (p *attentionPack) fill(r *Run, a *attention, from *[operandCount]Pointer, vec *int) {
	if p.n == 0 {
		return
	}
	var x, out [2]Pointer
	for i := range p.n {
		x[i], out[i] = from[p.operands[i]], r.keep(p.at[i])
		from[p.operands[i]] = out[i]
		*vec |= 1 << p.operands[i]
	}
	vectors := r.axis(*a.values[p.operands[0]], 0) * p.heads
	p.kernel.grid(blocks(vectors*a.tile.size/8, 256), p.n, 1).pointer("out0", out[0]).pointer("x0", x[0]).pointer("out1", out[1]).pointer("x1", x[1])
	p.kernel.long("vectors", vectors).int("d", a.HeadDim).int("dp", a.tile.size).int("vec", a.vectors(x[:p.n]...))
}

// addresses returns the addresses of the operands.
func (a *attention) addresses(r *Run) (p [operandCount]Pointer) {
	for i, v := range a.values {
		if v != nil {
			p[i] = r.at(*v)
		}
	}
	return p
}

// area divides the scratch memory of a launch.
type area struct{ size int }

// take reserves bytes and returns their offset.
func (s *area) take(bytes int) (offset int) {
	offset = s.size
	s.size += scratchBytes(bytes)
	return offset
}

// scratchBytes rounds a size up, so that what follows in the scratch memory is aligned.
func scratchBytes(bytes int) int { return blocks(bytes, 256) * 256 }

func (r *Run) keep(offset int) Pointer { return r.Scratch + Pointer(offset) }

// axisMax returns the largest size of the first axis of a value.
func (c *compiler) axisMax(v ir.Ref) int { return v.Type.Shape[0].Resolve(c.dims) }

func prepareAttention(c *compiler, l *ir.Launch) (step, error) {
	a := c.attention(l)
	decode, err := a.prepareDecode(c, l)
	if err != nil {
		return nil, err
	}
	if !isPlain(a.AttentionAttr) {
		return func(r *Run) { decode(r, true) }, nil
	}
	blocked, err := a.prepareForward(c, l)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		few := r.axis(a.q, 0) <= a.decodes
		decode(r, few)
		blocked(r, !few)
	}, nil
}

// prepareForward selects the kernels for blocks of queries.
func (a *attention) prepareForward(c *compiler, l *ir.Launch) (func(r *Run, used bool), error) {
	t := a.tile
	if c.axisMax(a.q) <= a.decodes {
		return func(*Run, bool) {}, nil
	}
	var s area
	pack, err := a.pack(c, &s, a.KVHeads, operandK, operandV)
	if err != nil {
		return nil, err
	}
	main, err := a.kernel(c, "attention", "", (t.queries+2*t.keys)*a.row()+a.scores(t.queries, t.keys))
	if err != nil {
		return nil, err
	}
	c.reserve(s.size)
	return func(r *Run, used bool) {
		pack.skip()
		main.skip()
		if !used {
			return
		}
		at, vec := a.addresses(r), a.vec(r)
		pack.fill(r, a, &at, &vec)
		main.grid(a.Heads*blocks(r.axis(a.q, 0), t.queries), 1, 1).pointer("o", at[operandO]).pointer("lse", r.at(l.Out[1]))
		main.pointer("q", at[operandQ]).pointer("k", at[operandK]).pointer("v", at[operandV])
		a.intervals(r, main).int("heads", a.Heads).int("group", a.group()).int("d", a.HeadDim).int("window", a.Window).float("scale", a.Scale)
		if a.rounded {
			main.int("bf16", a.bf16).int("vec", vec)
		} else {
			main.int("vec", a.vectors(at[operandQ], at[operandO], at[operandK], at[operandV]))
		}
		main.pointer("trap", r.Trap).int("launch", a.launch)
	}, nil
}

// prepareDecode selects the kernels for few queries, or for any number if attention is not plain.
func (a *attention) prepareDecode(c *compiler, l *ir.Launch) (func(r *Run, used bool), error) {
	queries, keys := c.axisMax(l.In[0]), c.axisMax(l.In[1])
	if a.Page > 0 {
		keys = a.Page * c.axisMax(a.pages)
	}
	if isPlain(a.AttentionAttr) {
		if a.decodes == 0 || (l.In[0].Type.Shape[0].Var == 0 && queries > a.decodes) {
			return func(*Run, bool) {}, nil
		}
		queries = min(queries, a.decodes)
	}
	size, heads := 0, 1
	for _, size = range decodeSizes {
		if a.HeadDim <= size {
			break
		}
	}
	most := min(8, c.target.QueryTile/size)
	if size > 128 {
		most = min(most, 4) // more do not fit the registers
	}
	for heads < min(a.group(), most) {
		heads *= 2
	}
	// shared returns the bytes for q, and for the scores or the sums in their place. Stride is the distance of the
	// scores of two keys.
	shared := func(rows, stride int) int { return 4 * (rows*size + max(4*rows*size, stride*decodeKeys)) }
	main, err := c.sharing("attention_decode", fmt.Sprintf("attention_decode_%d_%d", size, heads), 128, shared(heads, heads))
	if err != nil {
		return nil, err
	}
	// The heads of a tile are a power of two, so are its queries.
	rows := min(decodeRows, c.target.QueryTile/size)
	tile := rows / min(heads, rows)
	var tiled *Kernel
	few := c.target.TiledQueries // queries that are computed one by one
	if few > 0 && queries > few && tile > 1 && size <= largestHead {
		if tiled, err = c.sharing("attention_decode", fmt.Sprintf("attention_queries_%d", size), 128, shared(rows, rows+4)); err != nil {
			return nil, err
		}
	}
	merge, err := c.kernel("attention_decode", "attention_merge", 128)
	if err != nil {
		return nil, err
	}
	// A query sees one chunk more if a window begins inside of one.
	chunks := max(1, min(decodeChunks, decodeParts/max(queries, 1), blocks(keys, decodeChunk)))
	slots := chunks
	if a.Window > 0 && chunks > 1 {
		slots++
	}
	var s area
	sums, stats := 0, 0
	if slots > 1 {
		sums, stats = s.take(4*queries*a.Heads*slots*a.HeadDim), s.take(8*queries*a.Heads*slots)
	}
	c.reserve(s.size)
	return func(r *Run, used bool) {
		main.skip()
		if tiled != nil {
			tiled.skip()
		}
		merge.skip()
		if !used {
			return
		}
		n := r.axis(a.q, 0)
		most := min(slots, max(1, blocks(a.keys(r), decodeChunk)))
		o, lse, q, key, v, part, stat := r.at(l.Out[0]), r.at(l.Out[1]), r.at(a.q), r.at(a.k), r.at(l.In[2]), r.keep(sums), r.keep(stats)
		var pages Pointer
		if a.Page > 0 {
			pages = r.at(a.pages)
		}
		b := bias{reach: -1}
		if a.Bias != ir.NoBias {
			b = a.bias(r, l.In[5])
		}
		// launch computes n queries, or tiles of them, by blocks for some of the heads of a group.
		launch := func(k *Kernel, n, heads, tile int) {
			y := a.KVHeads * blocks(a.group(), heads)
			k.grid(n, y, min(most, blocks(decodeBlocks, max(1, n*y))))
			k.pointer("o", o).pointer("lse", lse).pointer("part", part).pointer("stat", stat).pointer("q", q).pointer("k", key).pointer("v", v)
			k.pointer("lo", r.at(a.lo)).pointer("hi", r.at(a.hi)).pointer("pages", pages).pointer("bias", b.at).int("n", r.axis(a.q, 0)).int("keys", a.keys(r))
			k.int("heads", a.Heads).int("group", a.group()).int("d", a.HeadDim).int("window", a.Window).float("scale", a.Scale).float("cap", a.SoftCap)
			k.long("bias_head", b.head).long("bias_query", b.query).int("bias_key", b.key).int("reach", b.reach)
			k.int("page", a.Page).int("cached", r.axis(a.k, 0)).int("chunks", chunks).int("slots", slots).int("bf16", a.bf16).int("vec", a.vec(r))
			k.int("tile", tile).pointer("trap", r.Trap).int("launch", a.launch)
		}
		if tiled == nil || n <= few {
			launch(main, n, heads, 0)
		} else {
			launch(main, n, heads, tile)
			launch(tiled, blocks(n, tile), rows/tile, tile)
		}
		if most == 1 {
			return
		}
		merge.grid(n*a.Heads, 1, 1).pointer("o", o).pointer("lse", lse).pointer("part", part).pointer("stat", stat)
		a.intervals(r, merge).int("heads", a.Heads).int("d", a.HeadDim).int("window", a.Window).int("chunks", chunks).int("slots", slots).int("bf16", a.bf16)
	}, nil
}

// bias locates the elements of a bias.
type bias struct {
	at                      Pointer
	head, query, key, reach int // strides; a reach of zero or more is that of relative positions
}

func (a *attention) bias(r *Run, v ir.Ref) bias {
	stride := func(axis, n int) int {
		if r.axis(v, axis) == 1 {
			return 0
		}
		return n
	}
	if a.Bias == ir.RelativeBias {
		return bias{at: r.at(v), head: stride(0, r.axis(v, 1)), reach: r.axis(v, 1) / 2}
	}
	m := r.axis(v, 2)
	return bias{r.at(v), stride(0, r.axis(v, 1)*m), stride(1, m), stride(2, 1), -1}
}
