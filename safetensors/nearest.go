package safetensors

import "slices"

// nearest returns up to n of the names by edit distance from name, nearest
// first; ties keep the given order. Names with less than half in common are
// omitted.
func nearest(name string, names []string, n int) []string {
	const longest = 256 // longer names are not mistyped
	if len(name) > longest {
		return nil
	}
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	limit := max(len(name)/2, 1)
	var rows [2][longest + 1]int
	for _, other := range names {
		if len(other) > longest {
			continue
		}
		d := editDistance(name, other, limit, rows[0][:], rows[1][:])
		if d > limit {
			continue
		}
		at, _ := slices.BinarySearchFunc(found, d+1, func(c candidate, d int) int { return c.distance - d })
		found = slices.Insert(found, at, candidate{other, d})
		if len(found) > n {
			found = found[:n]
			limit = found[n-1].distance // no worse name can be added
		}
	}
	best := make([]string, len(found))
	for i, c := range found {
		best[i] = c.name
	}
	return best
}

// editDistance returns the number of bytes to insert, delete or replace to turn
// a into b, or limit+1 if it exceeds limit. row and next are scratch of
// len(b)+1 elements.
func editDistance(a, b string, limit int, row, next []int) int {
	if max(len(a)-len(b), len(b)-len(a)) > limit {
		return limit + 1
	}
	for j := range len(b) + 1 {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		least := next[0]
		for j := range len(b) {
			change := row[j]
			if a[i] != b[j] {
				change++
			}
			next[j+1] = min(change, row[j+1]+1, next[j]+1)
			least = min(least, next[j+1])
		}
		if least > limit {
			return limit + 1
		}
		row, next = next, row
	}
	return row[len(b)]
}
