package torchfile

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func unpickle(b []byte) (any, error) {
	return newMachine(newInput(bytes.NewReader(b), int64(len(b))), storageOf).run()
}

func list(items ...any) *container       { return &container{kind: kindList, items: items} }
func tupleOfAny(items ...any) *container { return &container{kind: kindTuple, items: items} }

// dict is a dict of keys and values in turn.
func dict(pairs ...any) *container {
	d := &container{kind: kindDict}
	for i := 0; i < len(pairs); i += 2 {
		d.keys, d.items = append(d.keys, pairs[i]), append(d.items, pairs[i+1])
	}
	return d
}

func TestMachine(t *testing.T) {
	wide := new(big.Int).Lsh(big.NewInt(1), 64)
	for name, c := range map[string]struct {
		pickle string
		want   any
	}{
		"none":             {"N", nil},
		"true":             {"\x88", true},
		"false":            {"\x89", false},
		"int1":             {"K\xff", int64(255)},
		"int2":             {"M\xff\xff", int64(65535)},
		"int4":             {"J\xfe\xff\xff\xff", int64(-2)},
		"long of nothing":  {"\x8a\x00", int64(0)},
		"long":             {"\x8a\x01\x80", int64(-128)},
		"long of 8":        {"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", int64(math.MaxInt64)},
		"long of 9":        {"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01", wide},
		"negative of 9":    {"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\xff", new(big.Int).Neg(wide)},
		"needlessly long":  {"\x8a\x0a\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00", int64(5)},
		"float":            {"G\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5},
		"bytes of python2": {"U\x02ab", "ab"},
		"BINSTRING":        {"T\x02\x00\x00\x00ab", "ab"},
		"unicode":          {"X\x02\x00\x00\x00\xc3\xa9", "é"},
		"short unicode":    {"\x8c\x02\xc3\xa9", "é"},
		"unicode8":         {"\x8d\x02\x00\x00\x00\x00\x00\x00\x00\xc3\xa9", "é"},
		"bytes":            {"B\x02\x00\x00\x00ab", byteString("ab")},
		"short bytes":      {"C\x02ab", byteString("ab")},
		"bytes8":           {"\x8e\x02\x00\x00\x00\x00\x00\x00\x00ab", byteString("ab")},
		"bytearray8":       {"\x96\x02\x00\x00\x00\x00\x00\x00\x00ab", byteString("ab")},
		"empty tuple":      {")", tupleOfAny()},
		"tuple":            {"(K\x01K\x02t", tupleOfAny(int64(1), int64(2))},
		"tuple1":           {"K\x01\x85", tupleOfAny(int64(1))},
		"tuple2":           {"K\x01K\x02\x86", tupleOfAny(int64(1), int64(2))},
		"tuple3":           {"K\x01K\x02K\x03\x87", tupleOfAny(int64(1), int64(2), int64(3))},
		"append":           {"]K\x01a", list(int64(1))},
		"appends":          {"](K\x01K\x02e", list(int64(1), int64(2))},
		"set":              {"\x8f(K\x01\x90", &container{kind: kindSet, items: []any{int64(1)}}},
		"frozenset":        {"(K\x01\x91", &container{kind: kindSet, items: []any{int64(1)}}},
		"set item":         {"}K\x01K\x02s", dict(int64(1), int64(2))},
		"set items":        {"}(K\x01K\x02K\x03K\x04u", dict(int64(1), int64(2), int64(3), int64(4))},
		"frame":            {"\x95\x02\x00\x00\x00\x00\x00\x00\x00N.", nil},
		"stack global":     {"\x8c\x05torch\x8c\x07float32\x93", global("torch.float32")},
		"new tensor":       {"ctorch\nTensor\n)\x81", &tensor{}},
		"new sized tensor": {"ctorch\nFloatTensor\nK\x01\x85\x81", &tensor{}},
		"new parameter":    {"ctorch.nn.parameter\nParameter\n)\x81", &tensor{}},
		"global":           {"ctorch\nfloat32\n", global("torch.float32")},
	} {
		got, err := unpickle([]byte("\x80\x02" + c.pickle + "."))
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

func TestMemo(t *testing.T) {
	for name, c := range map[string]struct {
		pickle string
		want   any
	}{
		"again":         {"Nq\x00\x88q\x00h\x00\x87", tupleOfAny(nil, true, true)},
		"long":          {"\x88r\x00\x00\x00\x00j\x00\x00\x00\x00\x86", tupleOfAny(true, true)},
		"gap":           {"\x88q\x07\x89q\x00h\x07\x87", tupleOfAny(true, false, true)},
		"gap that ends": {"\x88q\x01\x89q\x00Nq\x01h\x01\x86\x87", tupleOfAny(true, false, tupleOfAny(nil, nil))},
		"far":           {"\x88r\xff\xff\xff\xffj\xff\xff\xff\xff\x86", tupleOfAny(true, true)},
		"memoize":       {"\x88\x94\x89\x94h\x00h\x01\x86\x87", tupleOfAny(true, false, tupleOfAny(true, false))},
		"same":          {"]q\x00h\x00K\x05a\x86", nil},
	} {
		got, err := unpickle([]byte("\x80\x02" + c.pickle + "."))
		require.NoError(t, err, name)
		if name == "same" { // one list, not two
			items := got.(*container).items
			require.Same(t, items[0], items[1])
			require.Equal(t, list(int64(5)), items[0])
			continue
		}
		require.Equal(t, c.want, got, name)
	}
}

// Whatever is on no list is refused with its name and place.
func TestOpcodesThatAreNotAllowed(t *testing.T) {
	allowed := []byte("(.)JKMGNQRTUX]abcehjqrstu}\x80\x81\x85\x86\x87\x88\x89\x8aBC\x8c\x8d\x8e\x8f\x90\x91\x93\x94\x95\x96")
	names := 0
	for op := range 256 {
		if slices.Contains(allowed, byte(op)) {
			require.NotEmpty(t, instructions[op].name)
			continue
		}
		_, err := unpickle([]byte{byte(opProto), 2, byte(opEmptyDict), byte(op)})
		var format *FormatError
		require.True(t, errors.As(err, &format), "%#x", op)
		require.Equal(t, ErrOpcode, format.Rule)
		require.EqualValues(t, 3, format.Offset)
		require.Contains(t, err.Error(), format.Opcode)
		if !strings.HasPrefix(format.Opcode, "0x") {
			names++
		}
	}
	require.Equal(t, 22, names)
	require.Equal(t, "REDUCE", opReduce.String())
	require.Equal(t, "STOP", opStop.String())
	require.Equal(t, "INST", opcode('i').String())
	require.Equal(t, "0xFF", opcode(0xff).String())
}

func TestBadPickles(t *testing.T) {
	const fine = "\x80\x02"
	for name, c := range map[string]struct {
		pickle string
		want   error
		says   string
	}{
		"nothing":                  {"", ErrTruncated, ""},
		"no stop":                  {fine + "N", ErrTruncated, "byte 3"},
		"protocol 1":               {"\x80\x01N.", ErrPickle, "protocol 1"},
		"protocol 6":               {"\x80\x06N.", ErrPickle, "protocol 6"},
		"no protocol":              {"\x80", ErrTruncated, "PROTO"},
		"nothing left":             {fine + ".", ErrPickle, "0 values"},
		"two left":                 {fine + "NN.", ErrPickle, "2 values"},
		"mark left":                {fine + "(N.", ErrPickle, "1 values"},
		"below the stack":          {fine + "\x85.", ErrPickle, "0 values on the stack, expected 1"},
		"below the mark":           {fine + "NN(\x86.", ErrPickle, "0 values on the stack, expected 2"},
		"no mark":                  {fine + "t.", ErrPickle, "no mark"},
		"no mark for a set":        {fine + "\x91.", ErrPickle, "no mark"},
		"no mark for appends":      {fine + "]e.", ErrPickle, "no mark"},
		"no mark for items":        {fine + "}u.", ErrPickle, "no mark"},
		"append to nothing":        {fine + "Na.", ErrPickle, "nothing on the stack"},
		"append nothing":           {fine + "a.", ErrPickle, "0 values"},
		"append to a dict":         {fine + "}Na.", ErrPickle, "a dict, expected a list"},
		"append to a number":       {fine + "K\x01Na.", ErrPickle, "an int, expected a list"},
		"items of a list":          {fine + "]NNs.", ErrPickle, "a list, expected a dict"},
		"item of nothing":          {fine + "Ns.", ErrPickle, "1 values"},
		"key without value":        {fine + "}(Nu.", ErrPickle, "a key without a value"},
		"add to a list":            {fine + "](N\x90.", ErrPickle, "a list, expected a set"},
		"put nothing":              {fine + "q\x00.", ErrPickle, "nothing on the stack"},
		"memoize nothing":          {fine + "\x94.", ErrPickle, "nothing on the stack"},
		"get nothing":              {fine + "h\x05.", ErrPickle, "nothing in the memo at 5"},
		"get far":                  {fine + "j\xff\xff\xff\xff.", ErrPickle, "nothing in the memo at 4294967295"},
		"int cut":                  {fine + "J\x00\x00", ErrTruncated, "BININT"},
		"int1 cut":                 {fine + "K", ErrTruncated, "BININT1"},
		"int2 cut":                 {fine + "M\x00", ErrTruncated, "BININT2"},
		"float cut":                {fine + "G\x00", ErrTruncated, "BINFLOAT"},
		"long cut":                 {fine + "\x8a\x05\x00", ErrTruncated, "LONG1"},
		"long without length":      {fine + "\x8a", ErrTruncated, "LONG1"},
		"string cut":               {fine + "X\x05\x00\x00\x00ab", ErrTruncated, "BINUNICODE"},
		"string without length":    {fine + "X\x05\x00", ErrTruncated, "BINUNICODE"},
		"string of 4 GB":           {fine + "X\xff\xff\xff\xff", ErrTruncated, "BINUNICODE"},
		"string of 2^64":           {fine + "\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", ErrTruncated, "BINUNICODE8"},
		"bytes of 2^63":            {fine + "\x8e\x00\x00\x00\x00\x00\x00\x00\x80.", ErrTruncated, "BINBYTES8"},
		"frame past the end":       {fine + "\x95\xff\x00\x00\x00\x00\x00\x00\x00N.", ErrTruncated, "FRAME"},
		"frame cut":                {fine + "\x95\xff", ErrTruncated, "FRAME"},
		"get cut":                  {fine + "j\x00", ErrTruncated, "LONG_BINGET"},
		"put cut":                  {fine + "Nr\x00", ErrTruncated, "LONG_BINPUT"},
		"global cut":               {fine + "ctorch\nfloat", ErrTruncated, "GLOBAL"},
		"global cut early":         {fine + "ctorch", ErrTruncated, "GLOBAL"},
		"long name":                {fine + "c" + strings.Repeat("x", 2000) + "\n\n.", ErrPickle, "1024"},
		"global of numbers":        {fine + "K\x01K\x02\x93.", ErrPickle, "an int and an int, expected two strings"},
		"global of half":           {fine + "\x8c\x05torchK\x01\x93.", ErrPickle, "a string and an int, expected two strings"},
		"global of nothing":        {fine + "N\x93.", ErrPickle, "1 values"},
		"call a number":            {fine + "K\x01)R.", ErrPickle, "an int that is called"},
		"call with a list":         {fine + "ctorch\nSize\n]R.", ErrPickle, "a list as arguments of torch.Size"},
		"call nothing":             {fine + ")R.", ErrPickle, "1 values"},
		"call a dtype":             {fine + "ctorch\nfloat32\n)R.", ErrGlobal, "a call of torch.float32"},
		"call a storage":           {fine + "ctorch\nFloatStorage\n)R.", ErrGlobal, "a call of torch.FloatStorage"},
		"new object of a function": {fine + "ctorch\nSize\n)\x81.", ErrGlobal, "a new object of torch.Size"},
		"new parameter of text":    {fine + "ctorch.nn.parameter\nParameter\nN\x85\x81.", ErrPickle, "a parameter of None"},
		"new nothing":              {fine + ")\x81.", ErrPickle, "1 values"},
		"state for a list":         {fine + "]}b.", ErrPickle, "state for a list"},
		"state for nothing":        {fine + "}b.", ErrPickle, "nothing on the stack"},
		"no state":                 {fine + "b.", ErrPickle, "0 values"},
		"state for a set":          {fine + "\x8f}b.", ErrPickle, "state for a set"},
		"state of a tensor":        {fine + "ctorch\nTensor\n)\x81Nb.", ErrPickle, "the state of a tensor"},
		"id of nothing":            {fine + "Q.", ErrPickle, "0 values"},
		"id of a number":           {fine + "K\x01Q.", ErrPickle, "an int as a persistent id"},
		"id of a list":             {fine + "]Q.", ErrPickle, "a list as a persistent id"},
		"id of a module":           {fine + "(X\x06\x00\x00\x00moduleNNNNtQ.", ErrPickle, "'storage'"},
	} {
		_, err := unpickle([]byte(c.pickle))
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, c.says, name)
		var format *FormatError
		require.True(t, errors.As(err, &format), name)
		if c.pickle != "" {
			require.NotEmpty(t, format.Opcode, name)
		}
	}
}

func TestGlobals(t *testing.T) {
	for name, want := range map[string]error{
		"torch FloatStorage":                           nil,
		"torch.cuda BFloat16Storage":                   nil,
		"torch.storage UntypedStorage":                 nil,
		"torch.storage _UntypedStorage":                nil,
		"torch.cuda HalfTensor":                        nil,
		"torch uint7":                                  nil,
		"__builtin__ set":                              nil,
		"torch.tensor Tensor":                          nil,
		"torch._utils _rebuild_qtensor":                ErrUnsupported,
		"torch._utils _rebuild_sparse_tensor":          ErrUnsupported,
		"torch._utils _rebuild_meta_tensor_no_storage": ErrUnsupported,
		"torch QInt8Storage":                           ErrGlobal,
		"torch.storage TypedStorage":                   ErrGlobal,
		"torch.storage _load_from_bytes":               ErrGlobal,
		"torch load":                                   ErrGlobal,
		"builtins eval":                                ErrGlobal,
		"__builtin__ eval":                             ErrGlobal,
		"os system":                                    ErrGlobal,
		"torch._utils _rebuild_tensor_v2.__globals__":  ErrGlobal,
		"torch serialization.os.system":                ErrGlobal,
		"torch. FloatStorage":                          ErrGlobal,
		" ":                                            ErrGlobal,
		"torch._utils._rebuild_tensor v2":              ErrGlobal,
	} {
		module, attribute, _ := strings.Cut(name, " ")
		_, err := unpickle(pickled(globalCode(module, attribute)))
		if want == nil {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, want, name)
		require.ErrorContains(t, err, "at byte 2 (GLOBAL)", name)
	}
	// Splitting the name elsewhere gives the same text, but no other function.
	_, err := unpickle(pickled(globalCode("torch._utils._rebuild_tensor_v2", "x")))
	require.ErrorContains(t, err, `"torch._utils._rebuild_tensor_v2.x"`)
}

func TestCalls(t *testing.T) {
	ordered := func(args ...any) code { return call("collections", "OrderedDict", args...) }
	pairs := code("](](K\x01K\x02e](K\x03K\x04ee")
	for name, c := range map[string]struct {
		code code
		want any
	}{
		"dict":              {ordered(), dict()},
		"dict of pairs":     {ordered(pairs), dict(int64(1), int64(2), int64(3), int64(4))},
		"dict of a dict":    {call("collections", "Counter", code("}K\x01K\x02s")), dict(int64(1), int64(2))},
		"set":               {call("__builtin__", "set", code("](K\x01e")), &container{kind: kindSet, items: []any{int64(1)}}},
		"empty set":         {call("builtins", "frozenset"), &container{kind: kindSet}},
		"bytes":             {call("_codecs", "encode", "a\u00ff", "latin1"), byteString("a\xff")},
		"no bytes":          {call("builtins", "bytes"), byteString("")},
		"bytearray":         {call("builtins", "bytearray", "a\u00ff", "latin-1"), byteString("a\xff")},
		"bytearray of them": {call("builtins", "bytearray", code("C\x02ab")), byteString("ab")},
		"complex":           {call("builtins", "complex", code("G\x3f\xf8\x00\x00\x00\x00\x00\x00"), code("G\xbf\xf8\x00\x00\x00\x00\x00\x00")), complex(1.5, -1.5)},
		"size":              {call("torch", "Size", tuple{2, 3}), tupleOfAny(int64(2), int64(3))},
		"size of a list":    {call("torch", "Size", code("](K\x02e")), tupleOfAny(int64(2))},
		"no size":           {call("torch", "Size"), tupleOfAny()},
		"device":            {call("torch", "device", "cpu"), text("cpu")},
		"numbered device":   {call("torch", "device", "cuda", 3), text("cuda:3")},
		"layout":            {call("torch.serialization", "_get_layout", "torch.strided"), text("torch.strided")},
	} {
		got, err := unpickle(pickled(c.code))
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	for name, c := range map[string]code{
		"dict of a number":      ordered(1),
		"dict of two":           ordered(pairs, pairs),
		"dict of singles":       ordered(code("](K\x01e")),
		"dict of longer":        ordered(code("](](K\x01K\x01K\x01ee")),
		"dict of dicts":         ordered(code("](}e")),
		"set of a number":       call("builtins", "set", 1),
		"set of a dict":         call("builtins", "set", code("}")),
		"bytes of a number":     call("builtins", "bytes", 5),
		"bytes in utf-8":        call("_codecs", "encode", "a", "utf-8"),
		"bytes without":         call("_codecs", "encode", "a"),
		"bytes of wide text":    call("_codecs", "encode", "\u0100", "latin1"),
		"complex of ints":       call("builtins", "complex", 1, 2),
		"complex of half":       call("builtins", "complex", code("G\x00\x00\x00\x00\x00\x00\x00\x00"), 1),
		"complex of one":        call("builtins", "complex", code("G\x00\x00\x00\x00\x00\x00\x00\x00")),
		"size of a number":      call("torch", "Size", 1),
		"size of text":          call("torch", "Size", tuple{"a"}),
		"negative size":         call("torch", "Size", tuple{-1}),
		"size of two":           call("torch", "Size", tuple{}, tuple{}),
		"size of many":          call("torch", "Size", tuple{1, 2, 3, 4, 5, 6, 7, 8, 9, "a"}),
		"device of nothing":     call("torch", "device"),
		"device of a number":    call("torch", "device", 1),
		"device by text":        call("torch", "device", "cuda", "0"),
		"layout of nothing":     call("torch.serialization", "_get_layout"),
		"layout of a number":    call("torch.serialization", "_get_layout", 1),
		"tensor of 3":           call("torch._utils", "_rebuild_tensor", 1, 2, 3),
		"tensor of no storage":  call("torch._utils", "_rebuild_tensor", 1, 2, tuple{}, tuple{}),
		"tensor v2 of 5":        call("torch._utils", "_rebuild_tensor_v2", 1, 2, 3, 4, 5),
		"tensor v3 of 6":        call("torch._utils", "_rebuild_tensor_v3", 1, 2, 3, 4, 5, 6),
		"tensor v3 of nothing":  call("torch._utils", "_rebuild_tensor_v3", 1, 2, 3, 4, 5, 6, 7),
		"parameter of a number": call("torch._utils", "_rebuild_parameter", 1, 2, 3),
		"parameter of nothing":  call("torch._utils", "_rebuild_parameter"),
		"device tensor":         call("torch._utils", "_rebuild_device_tensor_from_cpu_tensor", 1, 2, 3, 4),
		"type of 3":             call("torch._tensor", "_rebuild_from_type_v2", 1, 2, 3),
		"type of numbers":       call("torch._tensor", "_rebuild_from_type_v2", 1, 2, 3, 4),
	} {
		_, err := unpickle(pickled(c))
		require.ErrorIs(t, err, ErrPickle, name)
		require.ErrorContains(t, err, "(REDUCE): found ", name)
	}
}

// A tensor class may be named in few places, a function in one.
func TestRebuildFromType(t *testing.T) {
	inner := tuple{storageCode("FloatStorage", "0", 6), 0, tuple{6}, tuple{1}}
	from := func(module, name, class string, args any) error {
		_, err := unpickle(pickled(call("torch._tensor", "_rebuild_from_type_v2", globalCode(module, name), globalCode("torch", class), args, nil)))
		return err
	}
	require.NoError(t, from("torch._utils", "_rebuild_tensor", "Tensor", inner))
	require.ErrorIs(t, from("torch._tensor", "_rebuild_from_type_v2", "Tensor", inner), ErrGlobal)
	require.ErrorIs(t, from("torch", "Size", "Tensor", inner), ErrGlobal)
	require.ErrorIs(t, from("torch._utils", "_rebuild_tensor", "Size", inner), ErrPickle)
	require.ErrorIs(t, from("torch._utils", "_rebuild_tensor", "Tensor", tuple{}), ErrPickle)
	require.ErrorIs(t, from("torch._utils", "_rebuild_tensor", "Tensor", dictCode()), ErrPickle)
	require.ErrorIs(t, from("torch._utils", "_rebuild_tensor", "Tensor", 5), ErrPickle)
}

// Pickles of a few bytes that ask for much memory end with an error, and do not
// take it.
func TestMemoryIsBounded(t *testing.T) {
	const budget = 1 << 18 // as maxMemory, and quicker
	many := func(text string, n int) []byte { return bytes.Repeat([]byte(text), n) }
	const some = 1 << 10
	for name, pickle := range map[string][]byte{
		"dicts":   join("(", many("}", 3*some), "t"),
		"copies":  join("](", many("N", some), "eq\x00", many("c__builtin__\nset\nh\x00\x85R", 100)),
		"longs":   join("(", many("\x8a\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01", 4*some)),
		"ranks":   join("(", many("K\x01", some), "tq\x00(", bytes.Repeat(appendParts(nil, []any{globalCode("torch._utils", "_rebuild_tensor"), opMark, storageCode("FloatStorage", "0", 1), 0, code("h\x00h\x00tR")}), 100)),
		"sizes":   join("(", many("K\x01", some), "tq\x00", many("ctorch\nSize\nh\x00\x85R", 100)),
		"ids":     join(appendParts(nil, []any{tuple{"storage", globalCode("torch", "FloatStorage"), "0", "cpu", 0}}), "q\x00", many("h\x00Q", 3*some)),
		"memo":    join("N", many("\x94", 20*some)),
		"gaps":    join("N", gaps(5*some)),
		"floats":  join("(", many("G\x00\x00\x00\x00\x00\x00\x00\x00", 33*some)),
		"ints":    join("(", many("M\x00\x00", 33*some)),
		"strings": join("X\x00\x04\x00\x00", many("x", some), "q\x00", many("c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R", 300)),
		"texts":   join("(", many("U\x00", 10*some)),
		"long":    join("(", many("X\x00\x04\x00\x00"+strings.Repeat("x", some), 300)),
		"pairs":   join("](", many("NN\x86", some), "eq\x00", many("ccollections\nOrderedDict\nh\x00\x85R", 300)),
		"items":   join("}", bytes.Repeat(join("(", many("NN", some), "u"), 20)),
		"lists":   join("]", bytes.Repeat(join("(", many("N", some), "e"), 20)),
		"tensors": join("(", many("ctorch\nTensor\n)\x81", 2*some)),
	} {
		t.Run(name, func(t *testing.T) {
			pickle = join("\x80\x02", pickle, ".")
			m := newMachine(newInput(bytes.NewReader(pickle), int64(len(pickle))), storageOf)
			m.left = budget
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := m.run()
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, ErrLimit)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16*budget))
		})
	}
	// The stack is bounded on its own: what is on it costs nothing else.
	for _, text := range []string{"N", "("} {
		_, err := unpickle(bytes.Repeat([]byte(text), maxStack+1))
		require.ErrorIs(t, err, ErrLimit)
	}
}

func join(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

func gaps(n int) (b []byte) {
	for i := range n {
		b = le.AppendUint32(append(b, byte(opLongBinPut)), uint32(2*i+1))
	}
	return b
}

func TestNames(t *testing.T) {
	x := &tensor{}
	deep := func(n int) any {
		var v any = x
		for range n {
			v = list(v)
		}
		return v
	}
	laughs := list(x, x)
	for range 60 {
		laughs = list(laughs, laughs)
	}
	silence := list(int64(1), int64(1))
	for range 60 {
		silence = list(silence, silence)
	}
	many := list()
	for range maxNamed + 1 {
		many.items = append(many.items, x)
	}
	longKeys := any(x)
	for range 500 {
		longKeys = dict(strings.Repeat("k", 1<<18), longKeys)
	}
	loop := list(x)
	loop.items = append(loop.items, dict("a", loop))

	for name, c := range map[string]struct {
		root any
		want any // names, or an error
	}{
		"alone":            {x, []string{"tensor"}},
		"storage":          {&storage{}, []string{"tensor"}},
		"number":           {int64(3), []string{}},
		"empty name":       {dict("", dict("", x)), []string{"."}},
		"twice":            {dict("a", x, "b", list(x, x)), []string{"a", "b.0", "b.1"}},
		"keys":             {dict(int64(1), x, true, x, new(big.Int).Lsh(big.NewInt(1), 70), x, false, x), []string{"1", "True", "1180591620717411303424", "False"}},
		"float key":        {dict(0.5, x), ErrName},
		"harmless keys":    {dict(0.5, int64(1), tupleOfAny(), list(), "a", x), []string{"a"}},
		"collision":        {dict("a.b", x, "a", dict("b", x)), ErrName},
		"text and number":  {dict("1", x, int64(1), x), ErrName},
		"key twice":        {dict("a", x, "a", int64(5)), ErrName},
		"twice, elsewhere": {list(dict("a", int64(1), "a", int64(5)), x), []string{"1"}},
		"not text":         {dict("\xff", x), ErrName},
		"deep":             {deep(maxDepth), []string{strings.Repeat("0.", maxDepth-1) + "0"}},
		"too deep":         {deep(maxDepth + 1), ErrLimit},
		"billion laughs":   {laughs, ErrLimit},
		"many":             {many, ErrLimit},
		"nothing to laugh": {list(silence, x), []string{"1"}},
		"long names":       {longKeys, ErrLimit},
		"cycle":            {loop, ErrPickle},
	} {
		found, err := flatten(c.root, isTensor, false)
		if want, ok := c.want.(error); ok {
			require.ErrorIs(t, err, want, name)
			continue
		}
		require.NoError(t, err, name)
		got := []string{}
		for _, n := range found {
			got = append(got, n.name)
		}
		require.Equal(t, c.want, got, name)
	}

	found, err := flatten(dict(0.5, int64(1), "a", int64(2)), isScalar, true)
	require.NoError(t, err)
	require.Equal(t, []named{{"a", int64(2)}}, found)
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, "None"}, {true, "a bool"}, {int64(1), "an int"}, {big.NewInt(1), "an int"}, {1.5, "a float"}, {complex(1, 2), "a complex"}, {"a", "a string"}, {byteString("a"), "bytes"},
		{global("torch.Size"), "torch.Size"}, {text("cpu"), "cpu"}, {&storage{}, "a storage"}, {&tensor{}, "a tensor"}, {list(), "a list"}, {tupleOfAny(), "a tuple"}, {dict(), "a dict"}, {&container{kind: kindSet}, "a set"}, {3, "nothing"},
	} {
		assert.Equal(t, c.want, kindOf(c.v), fmt.Sprint(c.v))
	}
}
