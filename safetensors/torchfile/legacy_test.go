package torchfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

const legacyHead = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}."

// legacyFile is a legacy checkpoint of a pickle and its storages. All are of
// four bytes for each element.
func legacyFile(pickle []byte, keys []string, storages ...[]byte) []byte {
	list := code{byte(opEmptyList), byte(opMark)}
	for _, k := range keys {
		list = appendParts(list, []any{k})
	}
	b := append([]byte(legacyHead), pickle...)
	b = append(b, pickled(append(list, byte(opAppends)))...)
	for _, s := range storages {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(len(s)/4)), s...)
	}
	return b
}

func TestLegacy(t *testing.T) {
	tensors, err := openBytes(legacyFile(otherPickle, []string{"1", "0"}, []byte("12345678"), someData))
	require.NoError(t, err)
	require.Equal(t, someData, tensors[0].bytes(t))
	require.Equal(t, []byte("12345678"), tensors[1].bytes(t))
	// A storage of nothing may be the last.
	nothing := pickled(dictCode("a", tensorCode(storageCode("FloatStorage", "0", 0), 0, tuple{0}, tuple{1})))
	tensors, err = openBytes(legacyFile(nothing, []string{"0"}, nil))
	require.NoError(t, err)
	require.Empty(t, tensors[0].bytes(t))
	// What comes behind is another checkpoint.
	_, err = openBytes(append(legacyFile(somePickle, []string{"0"}, someData), "more"...))
	require.NoError(t, err)
}

func TestBadLegacy(t *testing.T) {
	one := []string{"0"}
	good := legacyFile(somePickle, one, someData)
	view := func(from, count any) []byte {
		id := append(appendParts(nil, []any{tuple{"storage", globalCode("torch", "FloatStorage"), "0", "cpu", 2, tuple{"v", from, count}}}), byte(opBinPersID))
		return legacyFile(pickled(dictCode("a", tensorCode(id, 0, tuple{1}, tuple{1}))), one, someData)
	}
	_, err := openBytes(view(1, 1))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		file []byte
		want error
		says string
	}{
		"another magic":          {edit(good, 5, 1), ErrNotTorch, "pickle of something else"},
		"another pickle":         {[]byte("\x80\x02}."), ErrNotTorch, ""},
		"another version":        {edit(good, 18, 0xea), ErrUnsupported, "1001"},
		"version cut":            {good[:19], ErrTruncated, "version"},
		"system cut":             {good[:22], ErrTruncated, "system"},
		"object cut":             {good[:30], ErrTruncated, "object"},
		"evil system":            {[]byte(legacyHead[:23] + "cos\nsystem\n)R."), ErrGlobal, "system: global is not allowed"},
		"storage in the system":  {[]byte(legacyHead[:23] + ")Q."), ErrPickle, "system: bad pickle"},
		"keys are no list":       {append([]byte(legacyHead), append(somePickle, pickled()...)...), ErrPickle, "keys of storages"},
		"keys are a dict":        {append([]byte(legacyHead), append(bytes.Clone(somePickle), pickled(opEmptyDict)...)...), ErrPickle, "a dict, expected a list"},
		"key is a number":        {append([]byte(legacyHead), append(bytes.Clone(somePickle), pickled(code("](K\x00e"))...)...), ErrPickle, "an int, expected a string"},
		"key that nobody uses":   {legacyFile(somePickle, []string{"1"}, someData), ErrStorage, "storage 1"},
		"key twice":              {legacyFile(somePickle, []string{"0", "0"}, someData, someData), ErrPickle, "twice"},
		"storage without a key":  {legacyFile(somePickle, nil), ErrRecord, "storage 0"},
		"length missing":         {good[:len(good)-len(someData)-1], ErrTruncated, "storage 0"},
		"data cut":               {good[:len(good)-1], ErrTruncated, "storage 0"},
		"more elements":          {edit(good, -16, 3), ErrStorage, "3 elements, expected 2"},
		"negative elements":      {edit(good, -16, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), ErrStorage, "-2 elements"},
		"view from before":       {view(-1, 1), ErrPickle, "within the storage"},
		"view past the end":      {view(1, 2), ErrPickle, "within the storage"},
		"view from past the end": {view(3, 0), ErrPickle, "within the storage"},
		"negative view":          {view(0, -1), ErrPickle, "within the storage"},
		"view of text":           {view("0", 1), ErrPickle, "within the storage"},
		"empty view":             {view(2, 0), ErrBounds, "elements below 0"},
		"huge":                   {legacyFile(pickled(tensorCode(storageCode("FloatStorage", "0", 1<<61), 0, tuple{1}, tuple{1})), one, someData), ErrStorage, ""},
		"huge and so it claims":  {edit(legacyFile(pickled(tensorCode(storageCode("FloatStorage", "0", 1<<61), 0, tuple{1}, tuple{1})), one, someData), -16, 0, 0, 0, 0, 0, 0, 0, 0x20), ErrTruncated, "storage 0"},
	} {
		_, err := openBytes(c.file)
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, c.says, name)
		var format *FormatError
		require.True(t, errors.As(err, &format), name)
	}
	id := append(appendParts(nil, []any{tuple{"storage", globalCode("torch", "FloatStorage"), "0", "cpu", 2, 5}}), byte(opBinPersID))
	_, err = openBytes(legacyFile(pickled(id), one, someData))
	require.ErrorContains(t, err, "a view of a storage")

	// Every prefix is too short.
	for n := range len(good) {
		_, err := openBytes(good[:n])
		require.Error(t, err, n)
	}
}

// A legacy file is not searched for the end of a pickle that has none.
func TestLegacyPicklesAreBounded(t *testing.T) {
	var read int64
	size := int64(1) << 40
	head := legacyHead + "\x80\x02\x8e\x00\xd0\xed\x90\x2e\x00\x00\x00" // bytes, 200 GB of them
	_, err := readLegacy(sparse{size: size, parts: map[int64][]byte{0: []byte(head)}, read: &read}, size)
	require.ErrorIs(t, err, ErrLimit)
	require.Less(t, read, int64(1<<20))
}
