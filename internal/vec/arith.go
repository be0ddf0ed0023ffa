package vec

// Add sets dst = a + b.
func Add(dst, a, b []float32) { active.add(dst, a[:len(dst)], b[:len(dst)]) }

// Sub sets dst = a − b.
func Sub(dst, a, b []float32) { active.sub(dst, a[:len(dst)], b[:len(dst)]) }

// Mul sets dst = a·b.
func Mul(dst, a, b []float32) { active.mul(dst, a[:len(dst)], b[:len(dst)]) }

// Div sets dst = a/b.
func Div(dst, a, b []float32) { active.div(dst, a[:len(dst)], b[:len(dst)]) }

// FMA adds a·b to dst.
func FMA(dst, a, b []float32) { active.fma(dst, a[:len(dst)], b[:len(dst)]) }

// Axpy adds a·x to dst.
func Axpy(dst []float32, a float32, x []float32) { active.axpy(dst, x[:len(dst)], a) }

// Scale sets dst = a·x.
func Scale(dst []float32, a float32, x []float32) { active.scale(dst, x[:len(dst)], a) }

func portableAdd(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func portableSub(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

func portableMul(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func portableDiv(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

func portableFMA(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] += a[i] * b[i]
	}
}

func portableAxpy(dst, x []float32, a float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += a * x[i]
	}
}

func portableScale(dst, x []float32, a float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = a * x[i]
	}
}
