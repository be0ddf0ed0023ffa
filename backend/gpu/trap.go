package gpu

import "encoding/binary"

// TrapBytes is the size of the memory for error reports of kernels. A report has the number of the launch plus one, a
// place and a value, as 64-bit numbers. Only the first report is kept.
const TrapBytes = 64

// ReadTrap returns the report in trap and clears it; ok is false if there is none.
func ReadTrap(trap []byte) (launch, where, value int, ok bool) {
	word := func(i int) int { return int(binary.LittleEndian.Uint64(trap[8*i:])) }
	if launch = word(0) - 1; launch < 0 {
		return 0, 0, 0, false
	}
	where, value = word(1), word(2)
	clear(trap)
	return launch, where, value, true
}

// Trapped returns the error that the kernels of a run have reported, or nil.
func (p *Plan) Trapped(r *Run, trap []byte) error {
	launch, where, value, ok := ReadTrap(trap)
	if !ok {
		return nil
	}
	return p.wrong(r, launch, where, value)
}
