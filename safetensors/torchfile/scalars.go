package torchfile

import "math/big"

// Scalars returns the values of a checkpoint that are not tensors, such as the
// epoch, the learning rate of an optimizer, or a configuration. Names are
// constructed as in Open. The values are int64, *big.Int for larger integers,
// float64, complex128, bool, string, []byte and nil for None; a dtype is the
// string "torch.float16", a device "cuda:0". Values below keys that are neither
// text nor integers are omitted, as are the attributes of objects, such as the
// _metadata of a state dict.
//
// It fails as Open does, except for errors in storages and tensors.
func Scalars(path string) (map[string]any, error) {
	in, err := openInput(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	c, err := read(in, in.size)
	if err != nil {
		return nil, withPath(err, path)
	}
	found, err := flatten(c.root, isScalar, true)
	if err != nil {
		return nil, withPath(err, path)
	}
	scalars := make(map[string]any, len(found))
	for _, n := range found {
		scalars[n.name] = scalar(n.value)
	}
	return scalars, nil
}

func isScalar(v any) bool {
	switch v := v.(type) {
	case *container, *tensor, *storage:
		return false
	case global:
		return dtypes[v] != nil // other globals are code
	}
	return true
}

// scalar converts a value to its exported type.
func scalar(v any) any {
	switch v := v.(type) {
	case global:
		return string(v)
	case text:
		return string(v)
	case byteString:
		return []byte(v)
	case *big.Int:
		return new(big.Int).Set(v) // the same value may occur in several places
	}
	return v
}
