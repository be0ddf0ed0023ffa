package torchfile

import (
	"strconv"
)

// PyTorch's functions that construct tensors. They record the position of the
// elements; whether these are within the storage is checked later, when the
// tensor has a name for the error.

// rebuildTensor implements _rebuild_tensor(storage, storage_offset, size,
// stride).
func rebuildTensor(m *machine, args []any) (any, error) {
	if len(args) != 4 {
		return nil, badArguments("storage, offset, size and stride", args)
	}
	if err := m.charge(costTensor); err != nil {
		return nil, err
	}
	t := &tensor{}
	return t, m.set4(t, args)
}

// rebuildTensorV2 implements _rebuild_tensor_v2(storage, storage_offset, size,
// stride, requires_grad, backward_hooks, metadata=None).
func rebuildTensorV2(m *machine, args []any) (any, error) {
	if len(args) != 6 && len(args) != 7 {
		return nil, badArguments("6 or 7", args)
	}
	v, err := rebuildTensor(m, args[:4])
	if err == nil && len(args) == 7 {
		err = v.(*tensor).setMetadata(args[6])
	}
	return v, err
}

// rebuildTensorV3 implements _rebuild_tensor_v3(storage, storage_offset, size,
// stride, requires_grad, backward_hooks, dtype, metadata=None).
func rebuildTensorV3(m *machine, args []any) (any, error) {
	if len(args) != 7 && len(args) != 8 {
		return nil, badArguments("7 or 8", args)
	}
	v, err := rebuildTensor(m, args[:4])
	if err != nil {
		return nil, err
	}
	t := v.(*tensor)
	name, ok := args[6].(global)
	if !ok || dtypes[name] == nil {
		return nil, badArguments("a dtype", args[6:])
	}
	t.dtype = dtypes[name]
	if len(args) == 8 {
		err = t.setMetadata(args[7])
	}
	return t, err
}

// rebuildParameter implements _rebuild_parameter(data, requires_grad,
// backward_hooks). It also implements _rebuild_parameter_with_state, whose
// state holds attributes added by Python code.
func rebuildParameter(_ *machine, args []any) (any, error) {
	if len(args) == 3 || len(args) == 4 {
		if t, ok := args[0].(*tensor); ok {
			return t, nil
		}
	}
	return nil, badArguments("a tensor and its gradient's", args)
}

// rebuildDeviceTensor implements _rebuild_device_tensor_from_cpu_tensor(data,
// dtype, device, requires_grad), with which tensors on devices such as XLA's
// are saved.
func rebuildDeviceTensor(_ *machine, args []any) (any, error) {
	if len(args) == 4 {
		t, ok := args[0].(*tensor)
		if ok && t.dtype != nil && args[1] == any(t.dtype.name) {
			return t, nil
		}
	}
	return nil, badArguments("a tensor and its own dtype", args)
}

// rebuildFromType implements _rebuild_from_type_v2(func, type, args, state): a
// tensor with attributes added by Python code.
func rebuildFromType(m *machine, args []any) (any, error) {
	if len(args) != 4 {
		return nil, badArguments("a function, a type, arguments and a state", args)
	}
	fn, ok1 := args[0].(global)
	class, ok2 := args[1].(global)
	inner, ok3 := args[2].(*container)
	if !ok1 || !ok2 || !ok3 || inner.kind != kindTuple || class != classParameter && !tensorClasses[class] {
		return nil, badArguments("a function, a type, arguments and a state", args)
	}
	switch fn {
	case "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3", "torch._utils._rebuild_parameter":
		return callables[fn](m, inner.items) // these functions do not call others
	}
	return nil, &FormatError{Rule: ErrGlobal, Found: "a call of " + string(fn), Expected: "a function that makes tensors"}
}

// set4 sets the fields of a tensor from storage, offset, size and stride.
func (m *machine) set4(t *tensor, args []any) error {
	s, ok := args[0].(*storage)
	offset, isInt := args[1].(int64)
	if !ok || !isInt || offset < 0 {
		return badArguments("a storage and an offset into it", args)
	}
	size, err := integers(args[2])
	if err != nil {
		return err
	}
	stride, err := integers(args[3])
	if err != nil {
		return err
	}
	if len(size) != len(stride) {
		return &FormatError{Rule: ErrPickle, Found: strconv.Itoa(len(stride)) + " strides", Expected: strconv.Itoa(len(size))}
	}
	if err := m.charge(costItem * len(size)); err != nil {
		return err
	}
	*t = tensor{storage: s, dtype: s.dtype, offset: offset, size: size, stride: stride}
	return nil
}

// setState implements Tensor.__setstate__ for the states that it supports.
func (m *machine) setState(t *tensor, state any) error {
	if c, ok := state.(*container); ok && c.kind == kindTuple {
		switch len(c.items) {
		case 3: // requires_grad and hooks
			return nil
		case 4:
			return m.set4(t, c.items)
		case 5: // state of a Variable
			if from, ok := c.items[0].(*tensor); ok {
				*t = *from
				return nil
			}
		}
	}
	return badArguments("the state of a tensor", []any{state})
}

// setMetadata sets the flags of views that are computed when they are read.
func (t *tensor) setMetadata(v any) error {
	d, ok := v.(*container)
	if v == nil {
		return nil
	}
	if !ok || d.kind != kindDict {
		return badArguments("a dict of flags", []any{v})
	}
	for i, key := range d.keys {
		set, ok := d.items[i].(bool)
		if !ok {
			return badArguments("a dict of flags", d.items)
		}
		switch key {
		case any("conj"):
			t.conj = set
		case any("neg"):
			t.neg = set
		default:
			return badArguments("the flags conj and neg", d.keys)
		}
	}
	return nil
}
