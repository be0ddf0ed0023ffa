package torchfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// A file that is exchanged between reading its pickle and mapping it would have
// its bytes taken for the other's tensors.
func TestChangedWhileOpening(t *testing.T) {
	file := archived(somePickle, someData)
	expanded := pickled(dictCode("a", tensorCode(storageCode("FloatStorage", "0", 2), 0, tuple{2, 1}, tuple{0, 1})))
	cut := func(path string) error { return os.Truncate(path, 10) }
	for name, c := range map[string]struct {
		file   []byte
		change func(path string) error
		want   error
	}{
		"replaced": {file, func(path string) error {
			if err := os.WriteFile(path+".new", file, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}, ErrChanged},
		"longer":            {file, func(path string) error { return os.Truncate(path, int64(len(file)+1)) }, ErrChanged},
		"written":           {file, func(path string) error { return os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)) }, ErrChanged},
		"shorter":           {file, cut, ErrTruncated},
		"shorter, legacy":   {legacyFile(somePickle, []string{"0"}, someData), cut, safetensors.ErrTruncated},
		"shorter, expanded": {legacyFile(expanded, []string{"0"}, someData), cut, safetensors.ErrTruncated},
		"gone":              {file, os.Remove, fs.ErrNotExist},
		"nothing":           {file, func(string) error { return nil }, nil},
	} {
		path := filepath.Join(t.TempDir(), "x.pt")
		require.NoError(t, os.WriteFile(path, c.file, 0o600))
		in, err := openInput(path)
		require.NoError(t, err)
		checkpoint, err := read(in, in.size)
		require.NoError(t, err)
		require.NoError(t, c.change(path), name)
		f, err := checkpoint.open(in)
		if name == "gone" {
			require.ErrorIs(t, in.unchanged(), c.want)
		}
		in.Close()
		require.ErrorIs(t, err, c.want, name)
		if err == nil {
			require.NoError(t, f.Close())
		}
	}
}

// What is not about the format keeps its own error.
func TestOtherErrors(t *testing.T) {
	wrong := errors.New("disk on fire")
	require.ErrorIs(t, withPath(wrong, "x.pt"), wrong)
	require.EqualError(t, withPath(wrong, "x.pt"), "torchfile: x.pt: disk on fire")
	_, err := newReaders([]placed{{}}, func() (lender, error) { return nil, wrong })
	require.ErrorIs(t, err, wrong)
}

// The states that tensors of old versions have.
func TestSetState(t *testing.T) {
	storage := storageCode("FloatStorage", "0", 2)
	class := append(globalCode("torch", "FloatTensor"), ")\x81"...)
	state := func(parts ...any) []byte {
		return archived(pickled(dictCode("a", append(appendParts(class[:len(class):len(class)], []any{tuple(parts)}), byte(opBuild)))), someData)
	}
	for name, file := range map[string][]byte{
		"of four": state(storage, 0, tuple{2}, tuple{1}),
		"of five": state(tensorCode(storage, 0, tuple{2}, tuple{1}), nil, nil, nil, nil),
	} {
		tensors, err := openBytes(file)
		require.NoError(t, err, name)
		require.Equal(t, someData, tensors[0].bytes(t), name)
	}
	for name, file := range map[string][]byte{
		"of five, empty":    state(nil, nil, nil, nil, nil),
		"of six":            state(nil, nil, nil, nil, nil, nil),
		"of three and none": state(nil, nil, nil),
	} {
		_, err := openBytes(file)
		require.ErrorIs(t, err, ErrPickle, name)
	}
}
