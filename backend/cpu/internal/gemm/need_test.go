package gemm_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
)

// A call that room was reserved for allocates nothing when it runs first, by
// whatever way it goes, and whatever its operands are.
func TestReservedCallsAllocateNothing(t *testing.T) {
	const own = 256 // bytes: the runtime allocates now and then, too
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		r := rand.New(rand.NewPCG(11, 11))
		for _, s := range [][3]int{{1, 17, 2100}, {2, 500, 320}, {7, 90, 200}, {12, 66, 600}, {20, 2100, 280}, {40, 17, 4200}, {64, 12, 1100}, {70, 90, 100}, {60, 130, 2200}, {100, 70, 300}, {200, 40, 100}, {150, 600, 300}, {3, 16, 60}} {
			if s[0]*s[1]*s[2] > 1e7 && tooSlow(isa) {
				continue
			}
			for _, elem := range []gemm.Elem{gemm.BF16, gemm.F32, gemm.Q8} {
				for trans := range 4 {
					m, n, k := s[0], s[1], s[2]
					p := newProblem(r, m, n, 0, false, false)
					elemA, stored := []gemm.Elem{gemm.F32, gemm.F32, gemm.BF16}[r.IntN(3)], elem == gemm.BF16 && (trans == 1 || r.IntN(2) == 0)
					if elem == gemm.BF16 && trans == 2 { // x·Aᵀ of an x that is widened
						elemA, stored = gemm.BF16, true
					}
					a := newMatrix(t, r, m, k, elemA, trans&1 != 0, 0)
					var b *matrix
					if elem.Quantized() {
						b = newQuantized(t, r, k, n, elem, trans&2 != 0, 0)
					} else {
						b = newMatrix(t, r, k, n, elem, trans&2 != 0, 0)
					}
					p.add(a, b, 1)
					p.add(newMatrix(t, r, m, 8, gemm.F32, trans&1 != 0, 0), newMatrix(t, r, 8, n, gemm.F32, trans&2 != 0, 0), 2)
					p.C = p.before
					if stored {
						p.Stored = &gemm.Stored{Data: unsafe.Pointer(unsafe.SliceData(make([]uint16, m*n)))}
					}
					least := 1 << 30
					for try := 0; try < 3 && least > own; try++ {
						e := engine(t, 2, isa)
						if stored {
							e.SetPrecision(gemm.BF16)
						}
						e.Reserve(e.Need(&p.Call))
						e.ReserveSerial(e.Need(&p.Call))
						least = min(least, allocated(func() { e.Run(&p.Call); e.Serial(0, &p.Call) }))
					}
					require.LessOrEqual(t, least, own, fmt.Sprint(s, elem, a.Elem, trans))
				}
			}
		}
	})
}

// allocated is how many bytes f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}
