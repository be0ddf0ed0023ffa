package safetensors

// arena is zeroed memory outside the Go heap, aligned to hugePage and backed by
// huge pages if the system has them.
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
