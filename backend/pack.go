package backend

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/ir"
)

// Pack says whether a device may keep copies of imported weights in the order
// that its products read them in, which saves packing them in every product.
// Results are the same bit for bit.
type Pack uint8

const (
	// PackNever keeps none.
	PackNever Pack = iota
	// PackAuto keeps them where they are worth their memory, which is a matter
	// of how many rows they are multiplied with.
	PackAuto
	// PackAlways keeps them wherever a product would use one.
	PackAlways
)

var packs = []string{"never", "auto", "always"}

// String is the name as ParsePack reads it.
func (p Pack) String() string {
	if int(p) < len(packs) {
		return packs[p]
	}
	return fmt.Sprintf("Pack(%d)", uint8(p))
}

// ParsePack reads never, auto or always.
func ParsePack(name string) (Pack, error) {
	if i := slices.Index(packs, name); i >= 0 {
		return Pack(i), nil
	}
	return PackNever, fmt.Errorf("pack: found %q, expected %s", name, strings.Join(packs, ", "))
}

// Packer is a device that can keep packed copies of weights.
type Packer interface {
	// SetPack allows copies of at most limit bytes in all for programs that are
	// compiled from now on. A copy is made when it is first used, as long as
	// there is room, and lives as long as the buffer that it is of. A limit of 0
	// is half of the memory that is free now. It gives the limit.
	SetPack(p Pack, limit int64) int64
	// PackedBytes is what the copies for programs take where there is room for
	// all. Errors: ErrUnsupported.
	PackedBytes(p Pack, programs ...*ir.Program) (int64, error)
}
