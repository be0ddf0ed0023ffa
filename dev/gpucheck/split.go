package gpucheck

import (
	"bytes"
	"encoding/binary"
)

// Programs of a pack have most of their functions in common, but not where these
// lie, and so calls and addresses of data differ in the distance that they name.
// split takes these distances out of a program for amd64, as the addresses that
// they lead to: what is left is the same in all programs, and chunks find it.
//
// Whether four bytes are a distance follows from the bytes before alone, which
// stay, so that joined puts them back whatever the bytes are.
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

// joined is a program out of its parts; ok is false where they are not.
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

// distanceAt tells after how many bytes a distance follows, 0 where none does: a
// call or jump, or an instruction that loads an address, or reads, compares or
// writes what lies there.
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
