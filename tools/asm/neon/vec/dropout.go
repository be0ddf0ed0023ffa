package main

// Offsets in dropBlock of package vec.
const (
	counterAt, keyAt, thresholdAt, scaleAt = 0, 16, 24, 28
)

// philox holds the registers of Philox4x32-10 with one counter per lane.
type philox struct {
	*kernel
	mul  [2]V   // the multipliers
	keys [20]op // two words per round
}

func newPhilox(k *kernel, block R) *philox {
	p := &philox{kernel: k}
	for i, m := range []uint32{0xD2511F53, 0xCD9E8D57} {
		p.mul[i] = k.near(m)[0].reg
	}
	for i := range p.keys {
		if i%lanes == 0 {
			r := k.Vec()
			for j := range lanes {
				p.keys[i+j] = op{r, j}
			}
		}
	}
	word, weyl := k.Reg(), k.Reg()
	for i, w := range []uint32{0x9E3779B9, 0xBB67AE85} {
		k.Go("MOVWU %d(%v), %v", keyAt+4*i, block, word)
		k.Go("MOVW $%#x, %v", w, weyl)
		for r := range 10 {
			o := p.keys[2*r+i]
			k.PutWord(o.reg, o.lane, word)
			k.Go("ADDW %v, %v", weyl, word)
		}
	}
	return p
}

// mulhilo computes the upper and lower words of the products with multiplier i.
func (p *philox) mulhilo(i int, c V) (hi, lo V) {
	a, b := p.Vec(), p.Vec()
	p.MulLow(a, c, p.mul[i])
	p.MulHigh(b, c, p.mul[i])
	hi, lo = p.Vec(), p.Vec()
	p.Odd(hi, a, b)
	p.Even(lo, a, b)
	return hi, lo
}

// xor emits hi ^= c ^ key word i.
func (p *philox) xor(hi, c V, i int) {
	p.Xor(hi, hi, c)
	p.Xor(hi, hi, p.full(p.keys[i]))
}

// block computes the four words of each counter.
func (p *philox) block(c [4]V) [4]V {
	for r := range 10 {
		hi0, lo0 := p.mulhilo(0, c[0])
		hi1, lo1 := p.mulhilo(1, c[2])
		p.xor(hi1, c[1], 2*r)
		p.xor(hi0, c[3], 2*r+1)
		c = [4]V{hi1, lo1, hi0, lo0}
	}
	return c
}

// dropout emits the masking of whole groups of 16 elements, with four counters, one per lane. A transposition orders
// their words.
func dropout() {
	k := text("dropout", "dst, x []float32, d *uint32",
		"is dst = x·scale where the mask keeps, else 0; d points to a dropBlock, len(dst) is a multiple of 16.")
	n, dst, x, block := k.param("dst_len"), k.param("dst_base"), k.param("x_base"), k.param("d")
	p := newPhilox(k, block)
	broadcast := func(disp int) V {
		r := k.Vec()
		k.Go("MOVWU %d(%v), %v", disp, block, k.temp)
		k.SpreadWord(r, k.temp)
		return r
	}
	var counter [4]V
	for i := range counter {
		counter[i] = broadcast(counterAt + 4*i)
	}
	k.Add(counter[0], counter[0], k.counting())
	next := k.near(lanes)[0].reg
	threshold, scale := broadcast(thresholdAt), broadcast(scaleAt)
	const group = 4 * lanes
	k.Go("SUBS $%d, %v", group, n)
	k.Branch("BLT", "end")
	k.Label("loop")
	words := k.Square(p.block(counter), [4]V{k.Vec(), k.Vec(), k.Vec(), k.Vec()})
	for j, w := range words {
		y := k.Vec()
		k.LoadVec(y, x, 16*j)
		k.FMul(y, y, scale)
		k.NotLess(w, w, threshold)
		k.And(y, y, w)
		k.StoreVec(y, dst, 16*j)
	}
	k.Add(counter[0], counter[0], next)
	k.Go("ADD $%d, %v", 4*group, x)
	k.Go("ADD $%d, %v", 4*group, dst)
	k.Go("SUBS $%d, %v", group, n)
	k.Branch("BGE", "loop")
	k.Label("end")
	k.Ret()
}
