package backend

import (
	"fmt"
	"slices"
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
	i, err := parseWord("pack", name, packs)
	return Pack(i), err
}

// Packs lists the names of all values of Pack.
func Packs() []string { return slices.Clone(packs) }

// MarshalText is String.
func (p Pack) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParsePack.
func (p *Pack) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePack(string(text))
	return err
}
