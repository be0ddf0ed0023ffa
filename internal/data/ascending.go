package data

import (
	"encoding/binary"
	"sort"
)

// ascendingGroup is the number of values that are found by adding differences.
const ascendingGroup = 32

// ascendingPage is the size of a page in bytes.
const ascendingPage = 64 << 10

// ascending is a sequence of ascending integers, such as the first tokens of the rows of a dataset, in about two bytes for
// each: the differences of successive values as varints, and the first value of each group. Pages are never copied, so
// that appending needs no more memory than the sequence. Once filled, it is safe for concurrent use.
type ascending struct {
	pages [][]byte
	heads []ascendingHead // of groups
	n     int
	last  int
}

// ascendingHead is the first value of a group, and the place of the differences of the others.
type ascendingHead struct {
	value int
	page  int32
	at    int32
}

// newAscending returns a sequence of values.
func newAscending(values ...int) *ascending {
	x := &ascending{}
	for _, v := range values {
		x.append(v)
	}
	return x
}

// len returns the number of values.
func (x *ascending) len() int { return x.n }

// append appends a value, which must not be less than the last.
func (x *ascending) append(value int) {
	if x.n%ascendingGroup == 0 {
		last := len(x.pages) - 1
		if last < 0 || len(x.pages[last]) > ascendingPage-ascendingGroup*binary.MaxVarintLen64 {
			x.pages = append(x.pages, nil)
			last++
		}
		x.heads = append(x.heads, ascendingHead{value, int32(last), int32(len(x.pages[last]))})
	} else {
		page := &x.pages[len(x.pages)-1]
		*page = binary.AppendUvarint(*page, uint64(value-x.last))
	}
	x.n, x.last = x.n+1, value
}

// at returns value i.
func (x *ascending) at(i int) int {
	head := x.heads[i/ascendingGroup]
	value, rest := head.value, x.pages[head.page][head.at:]
	for range i % ascendingGroup {
		step, n := binary.Uvarint(rest)
		value, rest = value+int(step), rest[n:]
	}
	return value
}

// find returns the number of values that are less than value.
func (x *ascending) find(value int) int {
	return sort.Search(x.n, func(i int) bool { return x.at(i) >= value })
}
