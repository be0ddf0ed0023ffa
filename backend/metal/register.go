//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/internal/bytesize"
)

// rank orders GPUs before the CPU.
const rank = 5

func init() {
	backend.Register(backend.Metal, backend.Driver{
		Rank:      rank,
		Precision: backend.F32,
		Devices:   Devices,
		Open:      func(o backend.Options) (backend.Device, error) { return Open(o) },
	})
}

// Devices lists the GPU. Errors: backend.ErrUnavailable.
func Devices() ([]backend.Info, error) {
	s, err := openSystem()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	defer s.close()
	return []backend.Info{s.traits().info()}, nil
}

// info returns the properties of a GPU that are known before it runs anything. Its memory is the working-set size that
// the device recommends.
func (t traits) info() backend.Info {
	i := backend.Info{Backend: backend.Metal, Name: t.name, Memory: t.workingSet, GPU: true, Unified: t.unified, Quantizes: gpu.Quantizes}
	var families []string
	if t.apple > 0 {
		families = append(families, fmt.Sprintf("Apple%d", t.apple))
	}
	if t.metal > 0 {
		families = append(families, fmt.Sprintf("Metal%d", t.metal))
	}
	if families == nil {
		families = []string{"no known family"}
	}
	memory := "memory of its own"
	if t.unified {
		memory = "unified memory"
	}
	i.Detail = fmt.Sprintf("%s, %s, working set %s, buffers of at most %s",
		strings.Join(families, " "), memory, bytesize.Binary(t.workingSet), bytesize.Binary(t.maxBuffer))
	return i
}
