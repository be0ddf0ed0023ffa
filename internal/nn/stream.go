package nn

import "fmt"

// Stream numbers a place that draws random numbers; two places of a model
// never share one, see [CheckStreams].
func Stream(name string) uint32 {
	h := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h
}

// CheckStreams finds modules whose names give one stream: their dropout masks
// would be the same. Errors: ErrStream, with both names.
func CheckStreams(modules []Module) error {
	names := make(map[uint32]string, len(modules))
	for _, m := range modules {
		s := Stream(m.Name)
		if other, ok := names[s]; ok && other != m.Name {
			return fmt.Errorf("%w: modules %q and %q both have number %#08x", ErrStream, other, m.Name, s)
		}
		names[s] = m.Name
	}
	return nil
}
