package torchfile

import "math/big"

// The values of a pickle. None is nil; bool, int64, *big.Int (where int64 is too
// narrow), float64, complex128 and string are themselves.

// byteString is bytes or bytearray.
type byteString string

// global is the name of a class, function or dtype from the list of those that
// are allowed. It stands for the object, which does not exist here.
type global string

// text is an object of which only its text is of interest: torch.device,
// torch.layout.
type text string

// container is a list, tuple, set or dict.
type container struct {
	kind  kind
	keys  []any // of a dict
	items []any // of a dict the values
}

type kind uint8

const (
	kindList kind = iota
	kindTuple
	kindSet
	kindDict
)

// storage is memory that tensors share: count elements from the one numbered
// from, of a record that has numel. Only legacy files have from and count that
// differ from 0 and numel.
type storage struct {
	key         string
	dtype       *dtype
	numel       int64
	from, count int64
}

// tensor is a view of a storage, its size and stride in elements.
type tensor struct {
	storage *storage // nil in one that NEWOBJ has made and BUILD has not yet filled
	dtype   *dtype
	offset  int64
	size    []int64
	stride  []int64
	conj    bool // the imaginary parts are to be negated
	neg     bool // everything is to be negated
}

// What values cost, for maxMemory: bytes, about.
const (
	costItem      = 16
	costNumber    = 8
	costBig       = 64
	costString    = 32
	costContainer = 192 // with what flatten notes of it
	costTensor    = 160
	costMemo      = 16
	costMemoEntry = 64 // of a memo that is not dense
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
