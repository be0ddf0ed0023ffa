package torchfile

import (
	"math/big"
	"strings"
	"unicode/utf8"
)

// The globals that a pickle may name: the entries of PyTorch's own list that
// construct tensors and plain containers. A global is only a name here; nothing
// is imported.

const (
	classTensor    global = "torch.Tensor"
	classParameter global = "torch.nn.parameter.Parameter"
)

// tensorClasses lists the types of tensors. The storage determines the element
// type.
var tensorClasses = map[global]bool{classTensor: true, "torch._tensor.Tensor": true}

func init() {
	for name := range storageClasses {
		if name, ok := strings.CutSuffix(name, "Storage"); ok && !strings.HasPrefix(name, "Complex") {
			tensorClasses[global("torch."+name+"Tensor")] = true
			tensorClasses[global("torch.cuda."+name+"Tensor")] = true
		}
	}
}

// callables maps the globals that REDUCE may call to their implementations.
var callables map[global]func(m *machine, args []any) (any, error)

func init() { // in init, because the functions refer to the table
	callables = map[global]func(m *machine, args []any) (any, error){
		"collections.OrderedDict":                             makeDict,
		"collections.Counter":                                 makeDict,
		"builtins.set":                                        makeSet,
		"builtins.frozenset":                                  makeSet,
		"builtins.bytes":                                      makeBytes,
		"builtins.bytearray":                                  makeBytes,
		"builtins.complex":                                    makeComplex,
		"_codecs.encode":                                      makeBytes,
		"torch.Size":                                          makeSize,
		"torch.device":                                        makeDevice,
		"torch.serialization._get_layout":                     makeLayout,
		"torch._utils._rebuild_tensor":                        rebuildTensor,
		"torch._utils._rebuild_tensor_v2":                     rebuildTensorV2,
		"torch._utils._rebuild_tensor_v3":                     rebuildTensorV3,
		"torch._utils._rebuild_parameter":                     rebuildParameter,
		"torch._tensor._rebuild_from_type_v2":                 rebuildFromType,
		"torch._utils._rebuild_parameter_with_state":          rebuildParameter,
		"torch._utils._rebuild_device_tensor_from_cpu_tensor": rebuildDeviceTensor,
	}
}

// known maps globals of PyTorch's list that are rejected to a description of the
// object.
var known = map[global]string{
	"torch._utils._rebuild_qtensor":                  "a quantized tensor",
	"torch._utils._rebuild_sparse_tensor":            "a sparse tensor",
	"torch._utils._rebuild_nested_tensor":            "a nested tensor",
	"torch._utils._rebuild_meta_tensor_no_storage":   "a tensor without data, of the device meta",
	"torch._utils._rebuild_wrapper_subclass":         "a tensor of another class, without data",
	"torch._utils._rebuild_device_tensor_from_numpy": "a tensor as an array of NumPy",
	"torch._utils._rebuild_xla_tensor":               "a tensor as an array of NumPy",
}

// renamed maps module names of Python 2 to current ones; Python 3 writes the
// old names into pickles of protocol 2.
var renamed = map[string]string{"__builtin__": "builtins", "torch.tensor": "torch._tensor"}

// lookUp returns a global if it is on the list.
func lookUp(module, name string) (global, error) {
	if now, ok := renamed[module]; ok {
		module = now
	}
	g := global(module + "." + name)
	if callables[g] != nil || tensorClasses[g] || storageType(g) != nil || dtypes[g] != nil || g == classParameter {
		return g, nil
	}
	if what := known[g]; what != "" {
		return "", &FormatError{Rule: ErrUnsupported, Found: what + " (" + string(g) + ")", Expected: "dense tensors with data; convert it in Python first"}
	}
	return "", &FormatError{Rule: ErrGlobal, Found: quote(string(g)), Expected: "tensors in dicts and lists only; in Python, save model.state_dict() and no other objects"}
}

func badArguments(of string, args []any) error {
	kinds := make([]string, 0, 8)
	for _, a := range args[:min(len(args), cap(kinds))] {
		kinds = append(kinds, kindOf(a))
	}
	if len(kinds) < len(args) {
		kinds = append(kinds, "…")
	}
	return &FormatError{Rule: ErrPickle, Found: "arguments (" + strings.Join(kinds, ", ") + ")", Expected: of}
}

// makeDict returns a dict, given no argument, a dict or, from Python 2, a list
// of pairs.
func makeDict(m *machine, args []any) (any, error) {
	if len(args) == 0 {
		return m.newContainer(kindDict, nil, nil)
	}
	from, ok := args[0].(*container)
	if !ok || len(args) != 1 {
		return nil, badArguments("the items of a dict", args)
	}
	if from.kind == kindDict {
		return m.newContainer(kindDict, from.keys, from.items)
	}
	keys := make([]any, 0, min(len(from.items), 1<<16))
	items := make([]any, 0, cap(keys))
	for _, v := range from.items {
		pair, ok := v.(*container)
		if !ok || pair.kind == kindDict || len(pair.items) != 2 {
			return nil, badArguments("a list of pairs", []any{v})
		}
		keys, items = append(keys, pair.items[0]), append(items, pair.items[1])
	}
	return m.newContainer(kindDict, keys, items)
}

func makeSet(m *machine, args []any) (any, error) {
	if len(args) == 0 {
		return m.newContainer(kindSet, nil, nil)
	}
	from, ok := args[0].(*container)
	if !ok || len(args) != 1 || from.kind == kindDict {
		return nil, badArguments("the items of a set", args)
	}
	return m.newContainer(kindSet, nil, from.items)
}

// makeBytes returns bytes from the form that protocol 2 uses: text in which
// each character encodes a byte.
func makeBytes(m *machine, args []any) (any, error) {
	if len(args) == 0 {
		return byteString(""), nil
	}
	if b, ok := args[0].(byteString); ok && len(args) == 1 {
		return b, nil
	}
	s, ok := args[0].(string)
	if !ok || len(args) != 2 || (args[1] != "latin1" && args[1] != "latin-1") {
		return nil, badArguments("text in latin-1", args)
	}
	if err := m.charge(costString + len(s)); err != nil {
		return nil, err
	}
	b := make([]byte, 0, utf8.RuneCountInString(s))
	for _, r := range s {
		if r > 0xff {
			return nil, badArguments("text in latin-1", args)
		}
		b = append(b, byte(r))
	}
	return byteString(b), nil
}

func makeComplex(_ *machine, args []any) (any, error) {
	if len(args) == 2 {
		re, ok1 := args[0].(float64)
		im, ok2 := args[1].(float64)
		if ok1 && ok2 {
			return complex(re, im), nil
		}
	}
	return nil, badArguments("two floats", args)
}

// makeSize returns a torch.Size as a plain tuple of numbers.
func makeSize(m *machine, args []any) (any, error) {
	if len(args) == 0 {
		return m.newContainer(kindTuple, nil, nil)
	}
	if _, err := integers(args[0]); err != nil || len(args) != 1 {
		return nil, badArguments("a tuple of ints", args)
	}
	return m.newContainer(kindTuple, nil, args[0].(*container).items)
}

func makeDevice(_ *machine, args []any) (any, error) {
	if len(args) == 0 || len(args) > 2 {
		return nil, badArguments("a device", args)
	}
	name, ok := args[0].(string)
	if ok && len(args) == 2 {
		var n int64
		if n, ok = args[1].(int64); ok {
			name += ":" + big.NewInt(n).String()
		}
	}
	if !ok {
		return nil, badArguments("a device", args)
	}
	return text(name), nil
}

func makeLayout(_ *machine, args []any) (any, error) {
	if len(args) == 1 {
		if name, ok := args[0].(string); ok {
			return text(name), nil
		}
	}
	return nil, badArguments("the name of a layout", args)
}

// integers returns the items of a tuple or list of non-negative ints.
func integers(v any) ([]int64, error) {
	c, ok := v.(*container)
	if !ok || c.kind != kindTuple && c.kind != kindList {
		return nil, badArguments("a tuple of ints", []any{v})
	}
	n := make([]int64, len(c.items))
	for i, item := range c.items {
		v, ok := item.(int64)
		if !ok || v < 0 {
			return nil, badArguments("a tuple of ints that are not negative", c.items)
		}
		n[i] = v
	}
	return n, nil
}
