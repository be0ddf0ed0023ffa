package gemm

import (
	"unsafe"

	"github.com/lorafuse/lorafuse/tensor"
)

// portable is the plain Go instruction set. Its tile is as large as the 16
// float registers of amd64 allow without spills.
var portable = kernels{
	isa: Portable, pairSize: 1,
	mr: portableMR, nr: portableNR, grain: portableMR, kc: 512,
	tile: portableTile,
	pack: portablePack,
	dots: portableDots, dotRows: 8,
	unblock: portableUnblock, dotBlocks: portableDotBlocks,
	direct: portableDirect, directRows: 8,
}

const (
	portableMR = 4
	portableNR = 2
)

func portableTile(rows, k int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer) {
	var acc [portableMR * portableNR]float32
	pa, pb := unsafe.Slice((*float32)(a), k*rows), unsafe.Slice((*float32)(b), k*portableNR)
	if rows == portableMR {
		fullTile(pa, pb, &acc)
	} else {
		edgeTile(rows, pa, pb, &acc)
	}
	for i := range rows {
		row := unsafe.Slice((*float32)(at(c, 4*i*ldc)), cols)
		for j := range row {
			v := acc[i*portableNR+j]
			if add {
				v += row[j]
			}
			if bias != nil {
				v += *(*float32)(at(bias, 4*j))
			}
			row[j] = v
		}
	}
}

// fullTile keeps the 4x2 sums in registers.
func fullTile(a, b []float32, acc *[portableMR * portableNR]float32) {
	var c00, c01, c10, c11, c20, c21, c30, c31 float32
	for len(a) >= 4 && len(b) >= 2 {
		b0, b1 := b[0], b[1]
		a0 := a[0]
		c00 += a0 * b0
		c01 += a0 * b1
		a1 := a[1]
		c10 += a1 * b0
		c11 += a1 * b1
		a2 := a[2]
		c20 += a2 * b0
		c21 += a2 * b1
		a3 := a[3]
		c30 += a3 * b0
		c31 += a3 * b1
		a, b = a[4:], b[2:]
	}
	*acc = [8]float32{c00, c01, c10, c11, c20, c21, c30, c31}
}

// edgeTile is fullTile for fewer rows.
func edgeTile(rows int, a, b []float32, acc *[portableMR * portableNR]float32) {
	for i := range rows {
		var c0, c1 float32
		for ai, bi := i, 0; bi+1 < len(b); ai, bi = ai+rows, bi+2 {
			v := a[ai]
			c0 += v * b[bi]
			c1 += v * b[bi+1]
		}
		acc[i*portableNR], acc[i*portableNR+1] = c0, c1
	}
}

func portablePack(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, alpha float32) {
	d := unsafe.Slice((*float32)(dst), k*width)
	for i := range width {
		if i >= lanes {
			for t := i; t < len(d); t += width {
				d[t] = 0
			}
			continue
		}
		p := at(src, i*lane)
		switch elem {
		case F32:
			for t, o := i, 0; t < len(d); t, o = t+width, o+step {
				d[t] = alpha * *(*float32)(at(p, o))
			}
		case BF16:
			for t, o := i, 0; t < len(d); t, o = t+width, o+step {
				d[t] = alpha * tensor.BF16ToFloat32(*(*uint16)(at(p, o)))
			}
		case F16:
			for t, o := i, 0; t < len(d); t, o = t+width, o+step {
				d[t] = alpha * tensor.F16ToFloat32(*(*uint16)(at(p, o)))
			}
		}
	}
}
