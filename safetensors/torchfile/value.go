package torchfile

import "math/big"

// The values of a pickle. None is nil; bool, int64, *big.Int (for larger
// integers), float64, complex128 and string represent themselves.

// byteString is bytes or bytearray.
type byteString string

// global is the name of an allowed class, function or dtype. It represents the
// object, which does not exist here.
type global string

// text is an object represented by its text: torch.device, torch.layout.
type text string

// container is a list, tuple, set or dict.
type container struct {
	kind  kind
	keys  []any // keys of a dict
	items []any // for a dict, the values
}

type kind uint8

const (
	kindList kind = iota
	kindTuple
	kindSet
	kindDict
)

// storage is memory shared by tensors: count elements, from element from, of a
// record with numel elements. Only in legacy files from and count differ from 0
// and numel.
type storage struct {
	key         string
	dtype       *dtype
	numel       int64
	from, count int64
}

// tensor is a view of a storage. Its size and stride are in elements.
type tensor struct {
	storage *storage // nil after NEWOBJ, before BUILD
	dtype   *dtype
	offset  int64
	size    []int64
	stride  []int64
	conj    bool // the imaginary parts must be negated
	neg     bool // all numbers must be negated
}

// Approximate memory of values in bytes, for maxMemory.
const (
	costItem      = 16
	costNumber    = 8
	costBig       = 64
	costString    = 32
	costContainer = 192 // including the survey of flatten
	costTensor    = 160
	costMemo      = 16
	costMemoEntry = 64 // in a memo with gaps
)

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64, *big.Int:
		return "an int"
	case float64:
		return "a float"
	case complex128:
		return "a complex"
	case string:
		return "a string"
	case byteString:
		return "bytes"
	case global:
		return string(v)
	case text:
		return string(v)
	case *storage:
		return "a storage"
	case *tensor:
		return "a tensor"
	case *container:
		return [...]string{kindList: "a list", kindTuple: "a tuple", kindSet: "a set", kindDict: "a dict"}[v.kind]
	}
	return "nothing"
}
