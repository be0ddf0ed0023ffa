package tokenizer

// merge merges the symbols in place and returns the number left. For pairs of equal rank
// the leftmost is merged first.
func (m *bpe) merge(ids []int32) int {
	if len(ids) <= 48 {
		return m.mergeShort(ids)
	}
	return m.mergeLong(ids)
}

const noMerge = int32(1<<31 - 1)

// mergeShort searches all pairs for the lowest rank after each merge.
func (m *bpe) mergeShort(ids []int32) int {
	var known [48]merger // known[i] merges ids[i] and ids[i+1]
	n := len(ids)
	find := func(i int) {
		known[i] = merger{rank: noMerge}
		if i+1 < n {
			if k, ok := m.merges[pair{ids[i], ids[i+1]}]; ok {
				known[i] = k
			}
		}
	}
	for i := range n {
		find(i)
	}
	for n > 1 {
		best := 0
		for i := 1; i < n-1; i++ {
			if known[i].rank < known[best].rank {
				best = i
			}
		}
		if known[best].rank == noMerge {
			break
		}
		ids[best] = known[best].id
		copy(ids[best+1:], ids[best+2:n])
		copy(known[best+1:], known[best+2:n])
		n--
		find(best)
		if best > 0 {
			find(best - 1)
		}
	}
	return n
}

// mergeLong keeps the pairs in a heap, for text that is not split into words.
func (m *bpe) mergeLong(ids []int32) int {
	type link struct{ prev, next int32 }
	links := make([]link, len(ids))
	for i := range links {
		links[i] = link{int32(i) - 1, int32(i) + 1}
	}
	end := int32(len(ids))
	queue := make(mergeQueue, 0, len(ids))
	candidate := func(at int32) (queuedMerge, bool) {
		next := links[at].next
		if next == end {
			return queuedMerge{}, false
		}
		k, ok := m.merges[pair{ids[at], ids[next]}]
		return queuedMerge{k, at}, ok
	}
	for i := int32(0); i < end; i++ {
		if q, ok := candidate(i); ok {
			queue.push(q)
		}
	}
	for len(queue) > 0 {
		q := queue.pop()
		if ids[q.at] == noID {
			continue // merged into its left neighbor
		}
		if now, ok := candidate(q.at); !ok || now.id != q.id {
			continue // one of the two symbols has changed
		}
		right := links[q.at].next
		ids[q.at], ids[right] = q.id, noID
		links[q.at].next = links[right].next
		if next := links[right].next; next != end {
			links[next].prev = q.at
		}
		if prev := links[q.at].prev; prev >= 0 {
			if c, ok := candidate(prev); ok {
				queue.push(c)
			}
		}
		if c, ok := candidate(q.at); ok {
			queue.push(c)
		}
	}
	n := 0
	for _, id := range ids {
		if id != noID {
			ids[n] = id
			n++
		}
	}
	return n
}

type queuedMerge struct {
	merger
	at int32 // index of the left symbol
}

// mergeQueue is a binary heap by rank, then by position.
type mergeQueue []queuedMerge

func (q queuedMerge) before(other queuedMerge) bool {
	return q.rank < other.rank || q.rank == other.rank && q.at < other.at
}

func (q *mergeQueue) push(m queuedMerge) {
	h := append(*q, m)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !m.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = m
	*q = h
}

func (q *mergeQueue) pop() queuedMerge {
	h := *q
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*q = h
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(last) {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = last
	}
	return top
}
