package data

import (
	"cmp"
	"math/bits"
	"slices"
)

// packWindow is the number of documents that are packed together, longest first. The limit keeps the documents of a row
// random if rows are shuffled, and close to each other otherwise.
const packWindow = 8192

// packs holds the documents of packed rows.
type packs struct {
	docs []uint32   // of all rows
	ends *ascending // row r has the documents docs[ends.at(r):ends.at(r+1)]
}

// newPacks packs n documents, which come in the given order.
func newPacks(n int, order func(i int) int, length func(doc int) int, capacity int) *packs {
	p := &packs{docs: make([]uint32, 0, n), ends: newAscending(0)}
	packRows(n, order, length, capacity, func(row []int) {
		for _, doc := range row {
			p.docs = append(p.docs, uint32(doc))
		}
		p.ends.append(len(p.docs))
	})
	return p
}

// len returns the number of rows.
func (p *packs) len() int { return p.ends.len() - 1 }

// each calls f with the documents of a row.
func (p *packs) each(row int, f func(doc int)) {
	for _, doc := range p.docs[p.ends.at(row):p.ends.at(row+1)] {
		f(int(doc))
	}
}

// packRows fills rows of at most capacity tokens with documents: best fit, longest first, within windows of order.
// length returns the tokens of a document, at most capacity. put receives the documents of each row; rows and documents
// keep the order of arrival.
func packRows(n int, order func(i int) int, length func(doc int) int, capacity int, put func(row []int)) {
	var window []int
	for i := range n {
		if window = append(window, order(i)); len(window) == packWindow || i+1 == n {
			for _, row := range packOnce(window, length, capacity) {
				put(row)
			}
			window = window[:0]
		}
	}
}

// packOnce packs one window. Rows hold indices into the window until the end, so that sorting them restores the order
// of arrival.
func packOnce(window []int, length func(doc int) int, capacity int) [][]int {
	byLength, tokens := make([]int, len(window)), 0
	for place := range window {
		byLength[place] = place
		tokens += length(window[place])
	}
	// A capacity above the sum of all lengths gives the same result and only costs memory for the index.
	capacity = min(capacity, tokens)
	slices.SortStableFunc(byLength, func(a, b int) int {
		return cmp.Compare(length(window[b]), length(window[a]))
	})
	var rows [][]int
	room := newFreeSpaceIndex(capacity)
	for _, place := range byLength {
		need := length(window[place])
		row, left, ok := room.removeBest(need)
		if !ok {
			row, left = len(rows), capacity
			rows = append(rows, nil)
		}
		rows[row] = append(rows[row], place)
		room.add(row, left-need)
	}
	for _, row := range rows {
		slices.Sort(row)
	}
	slices.SortFunc(rows, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	for _, row := range rows {
		for i, place := range row {
			row[i] = window[place]
		}
	}
	return rows
}

// freeSpaceIndex finds the fullest row that still has space for a document.
type freeSpaceIndex struct {
	rows  [][]int  // rows by free tokens, last in first out
	words []uint64 // bit r%64 of word r/64: rows[r] is not empty
}

func newFreeSpaceIndex(capacity int) *freeSpaceIndex {
	return &freeSpaceIndex{rows: make([][]int, capacity+1), words: make([]uint64, capacity/64+1)}
}

// add records the number of free tokens of a row.
func (x *freeSpaceIndex) add(row, room int) {
	x.rows[room] = append(x.rows[room], row)
	x.words[room/64] |= 1 << (room % 64)
}

// removeBest removes and returns the row with the least sufficient space.
func (x *freeSpaceIndex) removeBest(need int) (row, room int, ok bool) {
	room, ok = x.next(need)
	if !ok {
		return 0, 0, false
	}
	list := x.rows[room]
	row = list[len(list)-1]
	x.rows[room] = list[:len(list)-1]
	if len(list) == 1 {
		x.words[room/64] &^= 1 << (room % 64)
	}
	return row, room, true
}

// next returns the smallest free space, at least room, of any row.
func (x *freeSpaceIndex) next(room int) (int, bool) {
	for w := room / 64; w < len(x.words); w++ {
		word := x.words[w]
		if w == room/64 {
			word = word >> (room % 64) << (room % 64)
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word), true
		}
	}
	return 0, false
}
