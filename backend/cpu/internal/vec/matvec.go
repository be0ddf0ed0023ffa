package vec

// DotRows sets dst[j] = x·row j, for len(dst) rows of len(x) elements, row j
// at rows[j*stride:].
func DotRows(dst, x, rows []float32, stride int) {
	if len(dst) == 0 {
		return
	}
	_ = rows[:(len(dst)-1)*stride+len(x)]
	active.dotRows(dst, x, rows, stride)
}

// AddRows adds Σ p[j]·row j to dst, for len(p) rows of len(dst) elements,
// row j at rows[j*stride:], in ascending order of j.
func AddRows(dst, p, rows []float32, stride int) {
	if len(p) == 0 {
		return
	}
	_ = rows[:(len(p)-1)*stride+len(dst)]
	active.addRows(dst, p, rows, stride)
}

func portableDotRows(dst, x, rows []float32, stride int) {
	for j := range dst {
		dst[j] = portableDot(x, rows[j*stride:])
	}
}

func portableAddRows(dst, p, rows []float32, stride int) {
	for j, a := range p {
		portableAxpy(dst, rows[j*stride:], a)
	}
}
