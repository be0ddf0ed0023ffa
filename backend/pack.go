package backend

import (
	"fmt"
	"slices"
)

// Pack says whether a device may keep copies of imported weights in packed order, which saves packing them in every
// matrix multiplication. Results are bit-equal.
type Pack uint8

const (
	// PackNever keeps none.
	PackNever Pack = iota
	// PackAuto keeps copies if they save enough time for their memory, which depends on the number of rows of the
	// other operand.
	PackAuto
	// PackAlways keeps a copy for every matrix multiplication that can use one.
	PackAlways
)

var packs = []string{"never", "auto", "always"}

// String returns the name that ParsePack reads.
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

// PackModes lists the names of all values of [Pack].
func PackModes() []string { return slices.Clone(packs) }

// MarshalText returns the name as String does.
func (p Pack) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses text as ParsePack does.
func (p *Pack) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePack(string(text))
	return err
}
