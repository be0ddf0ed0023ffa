package torchfile

import (
	"errors"
	"io"
	"math"
	"math/big"
	"strconv"
)

// machine interprets a pickle without executing code: its values are data, its
// globals are names from a list, and calling one selects a function of this
// package.
//
// It accepts the opcodes that PyTorch accepts under weights_only, variants of
// them with other lengths of numbers or kinds of strings, and the opcodes of
// protocols 4 and 5 that construct the same values. Everything else is an error.
type machine struct {
	in    *input
	stack []any
	marks []int // stack heights at the marks
	memo  []any
	rare  map[uint32]any // memo entries after a gap
	left  int64          // remaining part of maxMemory
	// persistent returns the value of a persistent id. Nil means that such ids
	// are not allowed.
	persistent func(id []any) (any, error)

	op opcode // current opcode
	at int64  // its offset
}

// instruction is the implementation of an opcode.
type instruction struct {
	name string
	run  func(*machine) error
}

var instructions [256]instruction

// In init, because the table refers to functions that refer to the table
// through their errors.
func init() {
	for op, in := range map[opcode]instruction{
		opProto:           {"PROTO", (*machine).proto},
		opFrame:           {"FRAME", (*machine).frame},
		opNone:            {"NONE", func(m *machine) error { return m.push(nil) }},
		opNewTrue:         {"NEWTRUE", func(m *machine) error { return m.push(true) }},
		opNewFalse:        {"NEWFALSE", func(m *machine) error { return m.push(false) }},
		opBinInt:          {"BININT", (*machine).int4},
		opBinInt1:         {"BININT1", (*machine).int1},
		opBinInt2:         {"BININT2", (*machine).int2},
		opLong1:           {"LONG1", (*machine).long},
		opBinFloat:        {"BINFLOAT", (*machine).float},
		opShortBinString:  {"SHORT_BINSTRING", stringOf(1, asString)},
		opBinString:       {"BINSTRING", stringOf(4, asString)},
		opShortBinUnicode: {"SHORT_BINUNICODE", stringOf(1, asString)},
		opBinUnicode:      {"BINUNICODE", stringOf(4, asString)},
		opBinUnicode8:     {"BINUNICODE8", stringOf(8, asString)},
		opShortBinBytes:   {"SHORT_BINBYTES", stringOf(1, asBytes)},
		opBinBytes:        {"BINBYTES", stringOf(4, asBytes)},
		opBinBytes8:       {"BINBYTES8", stringOf(8, asBytes)},
		opByteArray8:      {"BYTEARRAY8", stringOf(8, asBytes)},
		opMark:            {"MARK", (*machine).pushMark},
		opEmptyTuple:      {"EMPTY_TUPLE", emptyOf(kindTuple)},
		opEmptyList:       {"EMPTY_LIST", emptyOf(kindList)},
		opEmptySet:        {"EMPTY_SET", emptyOf(kindSet)},
		opEmptyDict:       {"EMPTY_DICT", emptyOf(kindDict)},
		opTuple:           {"TUPLE", (*machine).tuple},
		opTuple1:          {"TUPLE1", tupleOf(1)},
		opTuple2:          {"TUPLE2", tupleOf(2)},
		opTuple3:          {"TUPLE3", tupleOf(3)},
		opFrozenSet:       {"FROZENSET", (*machine).frozenSet},
		opAppend:          {"APPEND", (*machine).append},
		opAppends:         {"APPENDS", appendsTo(kindList)},
		opAddItems:        {"ADDITEMS", appendsTo(kindSet)},
		opSetItem:         {"SETITEM", (*machine).setItem},
		opSetItems:        {"SETITEMS", (*machine).setItems},
		opBinGet:          {"BINGET", getOf(1)},
		opLongBinGet:      {"LONG_BINGET", getOf(4)},
		opBinPut:          {"BINPUT", putOf(1)},
		opLongBinPut:      {"LONG_BINPUT", putOf(4)},
		opMemoize:         {"MEMOIZE", (*machine).memoize},
		opGlobal:          {"GLOBAL", (*machine).global},
		opStackGlobal:     {"STACK_GLOBAL", (*machine).stackGlobal},
		opReduce:          {"REDUCE", (*machine).reduce},
		opNewObj:          {"NEWOBJ", (*machine).newObject},
		opBuild:           {"BUILD", (*machine).build},
		opBinPersID:       {"BINPERSID", (*machine).persistentID},
		opStop:            {"STOP", nil}, // ends the loop in run
	} {
		instructions[op] = in
	}
}

func newMachine(in *input, persistent func(id []any) (any, error)) *machine {
	return &machine{in: in, left: maxMemory, persistent: persistent}
}

// run interprets the pickle at the current input position, up to its STOP.
func (m *machine) run() (any, error) {
	m.stack, m.marks, m.memo, m.rare = nil, nil, nil, nil
	for {
		m.at = m.in.at
		c, err := m.in.byte()
		if err != nil {
			return nil, m.readError(err)
		}
		m.op = opcode(c)
		if m.op == opStop {
			break
		}
		in := &instructions[c]
		if in.run == nil {
			return nil, m.fail(ErrOpcode, "", "one that builds plain data")
		}
		if err := in.run(m); err != nil {
			return nil, err
		}
	}
	if len(m.stack) != 1 || len(m.marks) > 0 {
		return nil, m.fail(ErrPickle, strconv.Itoa(len(m.stack))+" values", "one")
	}
	return m.stack[0], nil
}

func (m *machine) fail(rule error, found, expected string) error {
	return &FormatError{Opcode: m.op.String(), Offset: m.at, Rule: rule, Found: found, Expected: expected}
}

// place adds the machine's position to an error without one.
func (m *machine) place(err error) error {
	var f *FormatError
	if errors.As(err, &f) && f.Opcode == "" {
		f.Opcode, f.Offset = m.op.String(), m.at
	}
	return err
}

// readError returns the error for an input that ends or cannot be read.
func (m *machine) readError(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &FormatError{Opcode: m.op.String(), Offset: m.at, Rule: ErrTruncated, Found: byteCount(m.in.size)}
	case errors.Is(err, errLongLine):
		return m.fail(ErrPickle, err.Error(), "")
	}
	return err
}

// charge subtracts bytes from the memory left for values.
func (m *machine) charge(bytes int) error {
	m.left -= int64(bytes)
	if m.left < 0 {
		return m.fail(ErrLimit, "values of more than "+byteCount(maxMemory), "")
	}
	return nil
}

func (m *machine) push(v any) error {
	if len(m.stack) >= maxStack {
		return m.fail(ErrLimit, "more than "+strconv.Itoa(maxStack)+" values on the stack", "")
	}
	m.stack = append(m.stack, v)
	return nil
}

// floor returns the stack index after the last mark. Values below it cannot be
// accessed before the mark is removed.
func (m *machine) floor() int {
	if len(m.marks) == 0 {
		return 0
	}
	return m.marks[len(m.marks)-1]
}

// pop removes the last n values from the stack and returns them. They are valid
// until the next push.
func (m *machine) pop(n int) ([]any, error) {
	if len(m.stack)-m.floor() < n {
		return nil, m.fail(ErrPickle, strconv.Itoa(len(m.stack)-m.floor())+" values on the stack", strconv.Itoa(n))
	}
	top := m.stack[len(m.stack)-n:]
	m.stack = m.stack[:len(m.stack)-n]
	return top, nil
}

// top returns the last value of the stack without removing it.
func (m *machine) top() (any, error) {
	if len(m.stack) == m.floor() {
		return nil, m.fail(ErrPickle, "nothing on the stack", "a value")
	}
	return m.stack[len(m.stack)-1], nil
}

// popMark removes the last mark and the values after it, and returns the
// values. They are valid until the next push.
func (m *machine) popMark() ([]any, error) {
	if len(m.marks) == 0 {
		return nil, m.fail(ErrPickle, "no mark", "one")
	}
	from := m.floor()
	m.marks = m.marks[:len(m.marks)-1]
	items := m.stack[from:]
	m.stack = m.stack[:from]
	return items, nil
}

func (m *machine) pushMark() error {
	if len(m.marks) >= maxStack {
		return m.fail(ErrLimit, "more than "+strconv.Itoa(maxStack)+" marks", "")
	}
	m.marks = append(m.marks, len(m.stack))
	return nil
}

func (m *machine) read(n uint64) ([]byte, error) {
	b, err := m.in.read(n)
	if err != nil {
		return nil, m.readError(err)
	}
	return b, nil
}

// number reads an unsigned number of the given number of bytes.
func (m *machine) number(bytes uint64) (uint64, error) {
	b, err := m.read(bytes)
	if err != nil {
		return 0, err
	}
	var n uint64
	for i, c := range b {
		n |= uint64(c) << (8 * i)
	}
	return n, nil
}

func (m *machine) proto() error {
	n, err := m.number(1)
	if err == nil && (n < 2 || n > 5) {
		return m.fail(ErrPickle, "protocol "+strconv.FormatUint(n, 10), "2 to 5")
	}
	return err
}

// frame checks the size of a frame, which is not used otherwise.
func (m *machine) frame() error {
	n, err := m.number(8)
	if err == nil && n > uint64(m.in.size-m.in.at) {
		return m.readError(io.ErrUnexpectedEOF)
	}
	return err
}

func (m *machine) pushInt(n int64) error {
	if err := m.charge(costNumber); err != nil {
		return err
	}
	return m.push(n)
}

func (m *machine) int1() error {
	n, err := m.number(1)
	if err != nil {
		return err
	}
	return m.pushInt(int64(n))
}

func (m *machine) int2() error {
	n, err := m.number(2)
	if err != nil {
		return err
	}
	return m.pushInt(int64(n))
}

func (m *machine) int4() error {
	n, err := m.number(4)
	if err != nil {
		return err
	}
	return m.pushInt(int64(int32(n)))
}

// long reads an integer of up to 255 bytes in two's complement.
func (m *machine) long() error {
	n, err := m.number(1)
	if err != nil {
		return err
	}
	b, err := m.read(n)
	if err != nil {
		return err
	}
	if n <= 8 {
		var wide [8]byte
		if n > 0 && b[n-1] >= 0x80 {
			wide = [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		}
		copy(wide[:], b)
		return m.pushInt(int64(le.Uint64(wide[:])))
	}
	if err := m.charge(costBig + len(b)); err != nil {
		return err
	}
	turned := make([]byte, len(b))
	for i, c := range b {
		turned[len(b)-1-i] = c
	}
	v := new(big.Int).SetBytes(turned)
	if turned[0] >= 0x80 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	if v.IsInt64() { // longer encoding than necessary
		return m.push(v.Int64())
	}
	return m.push(v)
}

func (m *machine) float() error {
	b, err := m.read(8)
	if err != nil {
		return err
	}
	if err := m.charge(costNumber); err != nil {
		return err
	}
	return m.push(math.Float64frombits(be.Uint64(b)))
}

func asString(b []byte) any { return string(b) }
func asBytes(b []byte) any  { return byteString(b) }

// stringOf returns an instruction that reads a string with a length field of
// the given number of bytes. Strings of Python 2 are treated as text, as in
// torch.load.
func stringOf(bytes uint64, as func([]byte) any) func(*machine) error {
	return func(m *machine) error {
		n, err := m.number(bytes)
		if err != nil {
			return err
		}
		b, err := m.read(n)
		if err != nil {
			return err
		}
		if err := m.charge(costString + len(b)); err != nil {
			return err
		}
		return m.push(as(b))
	}
}
