package gpucheck

import (
	"bytes"
	"encoding/binary"
)

// Programs of a pack share most functions, but at different addresses, so the relative offsets of calls and data
// differ. split extracts these offsets from an amd64 program, as absolute addresses. The remaining code is the same in
// all programs, so chunks match.
//
// Whether four bytes are an offset depends only on the bytes before them, which stay in place, so joined restores any
// input.
func split(program []byte) (code, addresses []byte) {
	code = bytes.Clone(program)
	for i := 0; i+distance <= len(code); {
		at := distanceAt(code, i)
		if at == 0 {
			i++
			continue
		}
		i += at + distance
		field := code[i-distance : i]
		addresses = binary.BigEndian.AppendUint32(addresses, binary.LittleEndian.Uint32(field)+uint32(i))
		clear(field)
	}
	return code, addresses
}

// joined reassembles a program from its parts; ok is false if they do not fit.
func joined(code, addresses []byte) (program []byte, ok bool) {
	program = bytes.Clone(code)
	for i := 0; i+distance <= len(program); {
		at := distanceAt(program, i)
		if at == 0 {
			i++
			continue
		}
		if len(addresses) < distance {
			return nil, false
		}
		i += at + distance
		binary.LittleEndian.PutUint32(program[i-distance:], binary.BigEndian.Uint32(addresses)-uint32(i))
		addresses = addresses[distance:]
	}
	return program, len(addresses) == 0
}

const distance = 4 // bytes

// distanceAt returns after how many bytes an offset follows, or 0 if none does: after a call or jump, or an
// instruction that loads an address or accesses the data there.
func distanceAt(b []byte, i int) int {
	switch {
	case (b[i] == 0xe8 || b[i] == 0xe9) && i+1+distance <= len(b):
		return 1
	case b[i] == 0x83 && b[i+1] == 0x3d && i+2+distance <= len(b):
		return 2
	case b[i] == 0x0f && i+3+distance <= len(b) && (b[i+1] == 0x10 || b[i+1] == 0x11) && b[i+2]&0xc7 == 0x05:
		return 3
	case b[i]&0xfb == 0x48 && i+3+distance <= len(b) && (b[i+1] == 0x8d || b[i+1] == 0x8b || b[i+1] == 0x89 || b[i+1] == 0x3b || b[i+1] == 0x39) && b[i+2]&0xc7 == 0x05:
		return 3
	}
	return 0
}
