package torchfile

import (
	"errors"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// Numbers of elements, offsets, sizes and strides of any magnitude are checked
// against the available bytes.
func TestBounds(t *testing.T) {
	float := func(numel int64) code { return storageCode("FloatStorage", "0", numel) }
	one := func(storage code, offset int64, size, stride tuple) code {
		return dictCode("a", tensorCode(storage, offset, size, stride))
	}
	v3 := func(class, dtype string, numel, offset int64, size, stride tuple) code {
		return dictCode("a", call("torch._utils", "_rebuild_tensor_v3", storageCode(class, "0", numel), offset, size, stride, nil, nil, globalCode("torch", dtype)))
	}
	for name, c := range map[string]struct {
		code code
		want error // nil where it is right
		says string
	}{
		"right":                   {one(float(2), 0, tuple{2}, tuple{1}), nil, ""},
		"scalar":                  {one(float(2), 1, tuple{}, tuple{}), nil, ""},
		"empty":                   {one(float(2), 2, tuple{0}, tuple{1}), nil, ""},
		"empty, far":              {one(float(2), 1<<40, tuple{3, 0}, tuple{int64(1 << 50), int64(1 << 60)}), nil, ""},
		"expanded":                {one(float(2), 1, tuple{1000, 1000}, tuple{0, 0}), nil, ""},
		"stride of one row":       {one(float(2), 0, tuple{1, 2}, tuple{int64(1 << 62), 1}), nil, ""},
		"bytes as numbers":        {v3("UntypedStorage", "int16", 8, 0, tuple{4}, tuple{1}), nil, ""},
		"numel more":              {one(float(3), 0, tuple{2}, tuple{1}), ErrStorage, "8 bytes, expected 3 elements of 4 bytes"},
		"numel less":              {one(float(1), 0, tuple{1}, tuple{1}), ErrStorage, ""},
		"numel 2^31":              {one(float(1<<31), 0, tuple{2}, tuple{1}), ErrStorage, ""},
		"numel 2^45":              {one(float(1<<45), 0, tuple{int64(1 << 45)}, tuple{1}), ErrStorage, ""},
		"numel wraps":             {one(float(1<<62+2), 0, tuple{2}, tuple{1}), ErrStorage, ""},
		"numel negative":          {one(float(-5), 0, tuple{2}, tuple{1}), ErrPickle, "BINPERSID"},
		"size more":               {one(float(2), 0, tuple{3}, tuple{1}), ErrBounds, "elements below 2"},
		"offset":                  {one(float(2), 1, tuple{2}, tuple{1}), ErrBounds, "offset 1"},
		"offset only":             {one(float(2), 2, tuple{}, tuple{}), ErrBounds, ""},
		"offset negative":         {one(float(2), -1, tuple{2}, tuple{1}), ErrPickle, "REDUCE"},
		"stride":                  {one(float(2), 0, tuple{2}, tuple{2}), ErrBounds, "stride [2]"},
		"stride negative":         {one(float(2), 1, tuple{2}, tuple{-1}), ErrPickle, "REDUCE"},
		"stride overflows":        {one(float(2), 0, tuple{3}, tuple{int64(math.MaxInt64)}), ErrBounds, ""},
		"strides overflow":        {one(float(2), 0, tuple{2, 2, 2}, tuple{int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64)}), ErrBounds, ""},
		"offset overflows":        {one(float(2), math.MaxInt64, tuple{2, 2}, tuple{int64(math.MaxInt64), 2}), ErrBounds, ""},
		"size negative":           {one(float(2), 0, tuple{-2}, tuple{1}), ErrPickle, "REDUCE"},
		"strides missing":         {one(float(2), 0, tuple{2}, tuple{}), ErrPickle, "0 strides, expected 1"},
		"sizes overflow":          {one(float(2), 0, tuple{int64(1 << 40), int64(1 << 40)}, tuple{0, 0}), ErrLimit, ""},
		"size of more dimensions": {one(float(2), 0, tuple{int64(1 << 62), 2, 2, 0}, tuple{0, 0, 0, 0}), ErrLimit, ""},
		"paired size overflows":   {v3("UntypedStorage", "float4_e2m1fn_x2", 8, 0, tuple{int64(1 << 62)}, tuple{0}), ErrLimit, ""},
		"sizes overflow in bits":  {one(float(2), 0, tuple{int64(1 << 61)}, tuple{0}), ErrLimit, ""},
		"expanded too far":        {one(float(2), 0, tuple{1 << 28, 2}, tuple{0, 1}), ErrLimit, "repeat their elements"},
		"bytes as more numbers":   {v3("UntypedStorage", "int16", 8, 0, tuple{5}, tuple{1}), ErrBounds, "elements below 4"},
		"bytes past the end":      {v3("UntypedStorage", "int64", 8, 1, tuple{}, tuple{}), ErrBounds, "elements below 1"},
		"floats as wider numbers": {v3("FloatStorage", "float64", 2, 0, tuple{2}, tuple{1}), ErrBounds, "elements below 1"},
		"bits":                    {v3("UntypedStorage", "bits8", 8, 0, tuple{8}, tuple{1}), ErrDType, "torch.bits8"},
		"no dtype":                {v3("UntypedStorage", "FloatStorage", 8, 0, tuple{8}, tuple{1}), ErrPickle, ""},
		"storage unknown":         {dictCode("a", storageCode("FloatStorage", "7", 2)), ErrRecord, "x/data/7"},
		"no storage":              {dictCode("a", append(globalCode("torch", "Tensor"), ")\x81"...)), ErrPickle, "without a storage"},
		"storage of a tensor":     {one(code(")"), 0, tuple{}, tuple{}), ErrPickle, "a storage and an offset"},
		"sizes of text":           {one(float(2), 0, tuple{"2"}, tuple{1}), ErrPickle, ""},
		"strides of text":         {one(float(2), 0, tuple{2}, tuple{"1"}), ErrPickle, ""},
		"class of a storage":      {dictCode("a", append(appendParts(nil, []any{tuple{"storage", "FloatStorage", "0", "cpu", 2}}), byte(opBinPersID))), ErrPickle, "'storage'"},
		"dtype of a storage":      {dictCode("a", append(appendParts(nil, []any{tuple{"storage", globalCode("torch", "float32"), "0", "cpu", 2}}), byte(opBinPersID))), ErrPickle, "'storage'"},
	} {
		tensors, err := openBytes(archived(pickled(c.code), someData))
		if c.want == nil {
			require.NoError(t, err, name)
			tensors[0].bytes(t)
			continue
		}
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, c.says, name)
		var format *FormatError
		require.True(t, errors.As(err, &format), name)
		require.True(t, format.Tensor == "a" || format.Opcode != "", "%s: %v", name, err)
	}
}

// The bound on repeated elements is for all tensors together.
func TestExpandedTogether(t *testing.T) {
	half := tensorCode(storageCode("FloatStorage", "0", 2), 0, tuple{1 << 26, 2}, tuple{0, 1})
	_, err := openBytes(archived(pickled(dictCode("a", half, "b", half)), someData))
	require.NoError(t, err)
	_, err = openBytes(archived(pickled(dictCode("a", half, "b", half, "c", half)), someData))
	require.ErrorIs(t, err, ErrLimit)
	require.ErrorContains(t, err, `tensor "c"`)
}

// A large compressed storage is fine as long as it is read in order.
func TestLargeInflated(t *testing.T) {
	if strconv.IntSize == 32 {
		t.Skip("no slice has so many elements")
	}
	c := &checkpoint{find: func(*storage) (extent, error) {
		return extent{record: "x/data/0", compressed: 1 << 30, size: 8 << 30, deflated: true}, nil
	}}
	s := &storage{key: "0", dtype: dtypes["torch.float32"], numel: 2 << 30, count: 2 << 30}
	p, err := c.place("a", s.tensor())
	require.NoError(t, err)
	require.False(t, p.inPlace)
	_, err = c.place("a", &tensor{storage: s, dtype: s.dtype, size: []int64{1 << 15, 1 << 16}, stride: []int64{1, 1 << 15}})
	require.ErrorIs(t, err, ErrLimit)
}

func TestFlags(t *testing.T) {
	flagged := func(class, dtype string, flags any) error {
		_, err := openBytes(archived(pickled(dictCode("a", call("torch._utils", "_rebuild_tensor_v3", storageCode(class, "0", 8), 0, tuple{}, tuple{}, nil, nil, globalCode("torch", dtype), flags))), someData))
		return err
	}
	flag := func(name string, on opcode) code { return dictCode(name, on) }
	require.NoError(t, flagged("UntypedStorage", "int32", nil))
	require.NoError(t, flagged("UntypedStorage", "int32", dictCode()))
	require.NoError(t, flagged("UntypedStorage", "int32", flag("neg", opNewFalse)))
	require.NoError(t, flagged("UntypedStorage", "float32", flag("neg", opNewTrue)))
	require.NoError(t, flagged("UntypedStorage", "complex64", flag("conj", opNewTrue)))
	require.ErrorIs(t, flagged("UntypedStorage", "int32", flag("neg", opNewTrue)), ErrUnsupported)
	require.ErrorIs(t, flagged("UntypedStorage", "float32", flag("conj", opNewTrue)), ErrUnsupported)
	require.ErrorIs(t, flagged("UntypedStorage", "int32", flag("other", opNewFalse)), ErrPickle)
	require.ErrorIs(t, flagged("UntypedStorage", "int32", dictCode("neg", 1)), ErrPickle)
	require.ErrorIs(t, flagged("UntypedStorage", "int32", 1), ErrPickle)
	require.ErrorIs(t, flagged("UntypedStorage", "int32", tuple{}), ErrPickle)
}

func TestDTypes(t *testing.T) {
	for name, d := range dtypes {
		require.Equal(t, name, d.name)
		if d.as != safetensors.Invalid {
			bits := int64(d.as.Bits())
			if d.paired() {
				bits *= 2
			}
			require.Equal(t, 8*d.bytes, bits, name)
		}
	}
	require.Len(t, storageClasses, 12)
	require.Equal(t, 4, dtypes["torch.complex64"].unit())
	require.Equal(t, 2, dtypes["torch.bfloat16"].unit())
	require.Equal(t, 8, dtypes["torch.int64"].unit())
}
