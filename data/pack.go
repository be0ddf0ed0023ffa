package data

import (
	"cmp"
	"math/bits"
	"slices"
)

// packWindow is how many documents are packed together. Within a window the
// longest come first; a limit keeps the documents of a row a random choice
// where rows are shuffled, and near each other where they are not.
const packWindow = 8192

// packRows fills rows of at most capacity tokens with documents: best fit,
// longest first, within windows of the order in which documents come. length
// gives the tokens of a document, none above capacity. Each result is the
// documents of one row; both levels keep the order of arrival.
func packRows(order []int, length func(doc int) int, capacity int) [][]int {
	var rows [][]int
	for window := range slices.Chunk(order, packWindow) {
		rows = append(rows, packOnce(window, length, capacity)...)
	}
	return rows
}

// packOnce packs one window. Rows hold places in the window until the end, so
// that sorting them restores the order of arrival.
func packOnce(window []int, length func(doc int) int, capacity int) [][]int {
	byLength, tokens := make([]int, len(window)), 0
	for place := range window {
		byLength[place] = place
		tokens += length(window[place])
	}
	// More room than all of them take packs the same, and has no index to pay for.
	capacity = min(capacity, tokens)
	slices.SortStableFunc(byLength, func(a, b int) int {
		return cmp.Compare(length(window[b]), length(window[a]))
	})
	var rows [][]int
	room := newRoomIndex(capacity)
	for _, place := range byLength {
		need := length(window[place])
		row, left, ok := room.take(need)
		if !ok {
			row, left = len(rows), capacity
			rows = append(rows, nil)
		}
		rows[row] = append(rows[row], place)
		room.put(row, left-need)
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

// A roomIndex finds the fullest row that still has room for a document.
type roomIndex struct {
	rows  [][]int  // rows by the tokens that are left in them, last in first out
	words []uint64 // bit r%64 of word r/64: rows[r] is not empty
}

func newRoomIndex(capacity int) *roomIndex {
	return &roomIndex{rows: make([][]int, capacity+1), words: make([]uint64, capacity/64+1)}
}

// put notes that a row has room for so many tokens more.
func (x *roomIndex) put(row, room int) {
	x.rows[room] = append(x.rows[room], row)
	x.words[room/64] |= 1 << (room % 64)
}

// take removes and returns a row with the least room that is enough.
func (x *roomIndex) take(need int) (row, room int, ok bool) {
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

// next is the least room, from the given one up, that some row has.
func (x *roomIndex) next(room int) (int, bool) {
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
