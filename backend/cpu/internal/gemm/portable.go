package gemm

import (
	"unsafe"

	"github.com/lorafuse/lorafuse/tensor"
)

// portable is the plain Go instruction set. Its tile is as large as the 16
// float registers of amd64 allow without spills.
var portable = kernels{
	isa: Portable, limits: limitsOf[Portable],
	panelKernels: &panelKernels{
		mr: portableMR, nr: portableNR, grain: portableMR, kc: 512 + kcRank, pairSize: 1,
		tile: portableTile, pack: portablePack,
	},
	rows: &rowKernels{
		dots: portableDots, dotRows: 8,
		unblock: portableUnblock, dotBlocks: portableDotBlocks,
		direct: portableDirect, directRows: 8,
	},
}

const (
	portableMR = 4
	portableNR = 2
)

func portableTile(rows, k int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int) {
	var acc [portableMR * portableNR]float32
	if rows == portableMR {
		fullTile(k, a, b, &acc)
	} else {
		edgeTile(rows, unsafe.Slice((*float32)(a), k*rows), unsafe.Slice((*float32)(b), k*portableNR), &acc)
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

// fullTile keeps the 4x2 sums in registers, and processes four steps of k at a time through array pointers, which
// need no bounds checks: that doubles its speed compared with a loop that shortens slices.
func fullTile(k int, a, b unsafe.Pointer, acc *[portableMR * portableNR]float32) {
	const unroll = 4
	var c00, c01, c10, c11, c20, c21, c30, c31 float32
	t := 0
	for ; t+unroll <= k; t += unroll {
		x, y := (*[unroll * portableMR]float32)(at(a, 4*portableMR*t)), (*[unroll * portableNR]float32)(at(b, 4*portableNR*t))
		b0, b1 := y[0], y[1]
		a0 := x[0]
		c00 += a0 * b0
		c01 += a0 * b1
		a1 := x[1]
		c10 += a1 * b0
		c11 += a1 * b1
		a2 := x[2]
		c20 += a2 * b0
		c21 += a2 * b1
		a3 := x[3]
		c30 += a3 * b0
		c31 += a3 * b1
		b0, b1 = y[2], y[3]
		a0 = x[4]
		c00 += a0 * b0
		c01 += a0 * b1
		a1 = x[5]
		c10 += a1 * b0
		c11 += a1 * b1
		a2 = x[6]
		c20 += a2 * b0
		c21 += a2 * b1
		a3 = x[7]
		c30 += a3 * b0
		c31 += a3 * b1
		b0, b1 = y[4], y[5]
		a0 = x[8]
		c00 += a0 * b0
		c01 += a0 * b1
		a1 = x[9]
		c10 += a1 * b0
		c11 += a1 * b1
		a2 = x[10]
		c20 += a2 * b0
		c21 += a2 * b1
		a3 = x[11]
		c30 += a3 * b0
		c31 += a3 * b1
		b0, b1 = y[6], y[7]
		a0 = x[12]
		c00 += a0 * b0
		c01 += a0 * b1
		a1 = x[13]
		c10 += a1 * b0
		c11 += a1 * b1
		a2 = x[14]
		c20 += a2 * b0
		c21 += a2 * b1
		a3 = x[15]
		c30 += a3 * b0
		c31 += a3 * b1
	}
	for ; t < k; t++ {
		x, y := (*[portableMR]float32)(at(a, 4*portableMR*t)), (*[portableNR]float32)(at(b, 4*portableNR*t))
		b0, b1 := y[0], y[1]
		a0 := x[0]
		c00 += a0 * b0
		c01 += a0 * b1
		a1 := x[1]
		c10 += a1 * b0
		c11 += a1 * b1
		a2 := x[2]
		c20 += a2 * b0
		c21 += a2 * b1
		a3 := x[3]
		c30 += a3 * b0
		c31 += a3 * b1
	}
	*acc = [portableMR * portableNR]float32{c00, c01, c10, c11, c20, c21, c30, c31}
}

// edgeTile computes fullTile for fewer rows.
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
