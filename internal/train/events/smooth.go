package events

import "math"

// A point of a curve.
type point struct{ x, y float64 }

// curve collects a scalar over the steps. Values that float32 cannot hold are
// no losses, and no axis can show them: they are left out.
func curve(records []Record, name string) []point {
	var c []point
	for _, r := range records {
		if y, ok := r.Value(name); ok && math.Abs(y) <= math.MaxFloat32 {
			c = append(c, point{float64(r.Step), y})
		}
	}
	return c
}

// smooth averages every point with its neighbours on both sides, weighted by powers of 1 - 2/(span+1) as in an
// exponential moving average; since it is two-sided, a falling curve does not lag. The weights of existing points sum
// to one, also at the ends.
func smooth(c []point, span float64) []point {
	keep := 1 - 2/(span+1)
	n := len(c)
	out := make([]point, n)
	var sum, weight float64
	before := make([]point, n) // sum and weight of the points up to here
	for i, p := range c {
		sum, weight = keep*sum+p.y, keep*weight+1
		before[i] = point{sum, weight}
	}
	sum, weight = 0, 0
	for i := n - 1; i >= 0; i-- {
		sum, weight = keep*sum, keep*weight // the points behind this one
		out[i] = point{c[i].x, (before[i].x + sum) / (before[i].y + weight)}
		sum, weight = sum+c[i].y, weight+1
	}
	return out
}

// thin keeps a curve of very many points drawable: of each of n/2 runs of
// points, the lowest and the highest. Peaks stay.
func thin(c []point, n int) []point {
	if len(c) <= n {
		return c
	}
	out := make([]point, 0, n)
	runs := n / 2
	for i := range runs {
		run := c[i*len(c)/runs : (i+1)*len(c)/runs]
		low, high := 0, 0
		for j, p := range run {
			if p.y < run[low].y {
				low = j
			}
			if p.y > run[high].y {
				high = j
			}
		}
		out = append(out, run[min(low, high)])
		if low != high {
			out = append(out, run[max(low, high)])
		}
	}
	return out
}
