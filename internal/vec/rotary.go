package vec

// Rotary rotates the pairs of one position by the angles of that position, in
// the "rotate_half" layout of Hugging Face (Su et al., RoFormer, 2021). x and
// dst hold whole heads of headDim elements, cos and sin the angles of the n =
// len(cos) ≤ headDim/2 pairs (i, i+n) of each head:
//
//	dst[i]   = x[i]·cos[i] − x[i+n]·sin[i]
//	dst[i+n] = x[i+n]·cos[i] + x[i]·sin[i]
//
// Elements from 2n on are copied (partial rotary). With inverse the angles are
// negated, which gives the gradient. dst may be x.
func Rotary(dst, x []float32, headDim int, cos, sin []float32, inverse bool) {
	n := len(cos)
	sin = sin[:n]
	turn := active.rotate
	if inverse {
		turn = active.rotateBack
	}
	for ; len(dst) >= headDim && headDim > 0; dst, x = dst[headDim:], x[headDim:] {
		turn(dst[:n], dst[n:2*n], x[:n], x[n:2*n], cos, sin)
		copy(dst[2*n:headDim], x[2*n:headDim])
	}
}

func portableRotate(y1, y2, x1, x2, cos, sin []float32) {
	for i, c := range cos {
		a, b, s := x1[i], x2[i], sin[i]
		y1[i] = a*c - b*s
		y2[i] = b*c + a*s
	}
}

func portableRotateBack(y1, y2, x1, x2, cos, sin []float32) {
	for i, c := range cos {
		a, b, s := x1[i], x2[i], sin[i]
		y1[i] = a*c + b*s
		y2[i] = b*c - a*s
	}
}
