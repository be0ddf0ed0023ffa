package torchfile

import "fmt"

// opcode is an instruction of a pickle. The names are the same as in Python's
// pickletools.
type opcode byte

const (
	opMark            opcode = '('
	opEmptyTuple      opcode = ')'
	opStop            opcode = '.'
	opBinInt          opcode = 'J'
	opBinInt1         opcode = 'K'
	opBinInt2         opcode = 'M'
	opBinFloat        opcode = 'G'
	opNone            opcode = 'N'
	opBinPersID       opcode = 'Q'
	opReduce          opcode = 'R'
	opBinString       opcode = 'T'
	opShortBinString  opcode = 'U'
	opBinUnicode      opcode = 'X'
	opEmptyList       opcode = ']'
	opAppend          opcode = 'a'
	opBuild           opcode = 'b'
	opGlobal          opcode = 'c'
	opAppends         opcode = 'e'
	opBinGet          opcode = 'h'
	opLongBinGet      opcode = 'j'
	opBinPut          opcode = 'q'
	opLongBinPut      opcode = 'r'
	opSetItem         opcode = 's'
	opTuple           opcode = 't'
	opSetItems        opcode = 'u'
	opEmptyDict       opcode = '}'
	opProto           opcode = 0x80
	opNewObj          opcode = 0x81
	opTuple1          opcode = 0x85
	opTuple2          opcode = 0x86
	opTuple3          opcode = 0x87
	opNewTrue         opcode = 0x88
	opNewFalse        opcode = 0x89
	opLong1           opcode = 0x8a
	opBinBytes        opcode = 'B'
	opShortBinBytes   opcode = 'C'
	opShortBinUnicode opcode = 0x8c
	opBinUnicode8     opcode = 0x8d
	opBinBytes8       opcode = 0x8e
	opEmptySet        opcode = 0x8f
	opAddItems        opcode = 0x90
	opFrozenSet       opcode = 0x91
	opStackGlobal     opcode = 0x93
	opMemoize         opcode = 0x94
	opFrame           opcode = 0x95
	opByteArray8      opcode = 0x96
)

// refused maps opcodes that are not allowed to their names. Some run code (INST,
// OBJ, NEWOBJ_EX), some use values that a program has registered (EXT1) or passes
// in (NEXT_BUFFER), and the rest was never written by torch.save.
var refused = map[opcode]string{
	'0': "POP", '1': "POP_MARK", '2': "DUP", 'F': "FLOAT", 'I': "INT", 'L': "LONG", 'S': "STRING", 'V': "UNICODE",
	'P': "PERSID", 'd': "DICT", 'g': "GET", 'i': "INST", 'l': "LIST", 'o': "OBJ", 'p': "PUT",
	0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x8b: "LONG4", 0x92: "NEWOBJ_EX", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}

// String returns the name of the opcode, or its number if it has no name.
func (op opcode) String() string {
	if name := instructions[op].name; name != "" {
		return name
	}
	if name := refused[op]; name != "" {
		return name
	}
	return fmt.Sprintf("0x%02X", byte(op))
}
