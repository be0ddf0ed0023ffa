package safetensors

// arena is a stretch of memory of its own, outside of the garbage collector's:
// aligned to hugePage, zero, and, where the system has them, in huge pages.
type arena struct {
	data   []byte
	region region
}

// hugePage is the size of huge pages, and the alignment of arenas.
const hugePage = 2 << 20

func (a *arena) free() {
	if a.region.mapped {
		_ = a.region.unmap()
	}
	*a = arena{}
}
