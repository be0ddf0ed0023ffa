package safetensors

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// freeze makes a folder one that nothing can be added to or removed from, or
// undoes that. It is one of the few things that stop the superuser.
func freeze(dir string, frozen bool) error {
	const immutable = 0x10 // FS_IMMUTABLE_FL
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	flags, err := unix.IoctlGetUint32(int(d.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	flags &^= immutable
	if frozen {
		flags |= immutable
	}
	return unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, int(flags))
}

// From some step on nothing works any more: the write says so, unless all that
// is left to do is done, and the model is the old one or the new one.
func TestWriteShardedIntoAFrozenFolder(t *testing.T) {
	if err := freeze(t.TempDir(), false); err != nil {
		t.Skip("folders cannot be made immutable: ", err)
	}
	dir := t.TempDir()
	require.NoError(t, freeze(dir, true))
	require.NoError(t, freeze(dir, false))
	defer func() { _ = freeze(dir, false) }()
	shards, options := []int{1, 2}, [][]Option{nil, {Stem(DiffusersStem), Variant("fp16")}}
	if os.Getenv("LORAFUSE_LONG") != "" {
		shards, options = []int{1, 2, 3}, append(options, []Option{Durable()})
	}
	for _, opts := range options {
		var names []NameOption
		for _, o := range opts {
			if n, ok := o.(NameOption); ok {
				names = append(names, n)
			}
		}
		for _, from := range shards {
			for _, to := range shards {
				for k := 1; ; k++ {
					require.NoError(t, WriteSharded(dir, generation(from, 1), 1, nil, opts...))
					steps := 0
					err := WriteSharded(dir, generation(to, 2), 1, nil, append(opts, onStep(func() {
						if steps++; steps == k {
							require.NoError(t, freeze(dir, true))
						}
					}))...)
					require.NoError(t, freeze(dir, false))
					set, openErr := OpenModel(dir, names...)
					now := found(t, set, openErr, map[byte]int{1: from, 2: to})
					if err == nil {
						require.Equal(t, byte(2), now)
					} else {
						require.ErrorIs(t, err, os.ErrPermission)
						require.NotZero(t, now)
					}
					if steps < k {
						break
					}
				}
			}
		}
	}
	require.NoError(t, WriteSharded(dir, generation(2, 1), 1, nil))
	require.NoError(t, WriteSharded(dir, generation(1, 1), 1, nil, Stem(DiffusersStem), Variant("fp16")))
	assertFiles(t, dir, append([]string{"diffusion_pytorch_model.fp16.safetensors"}, shardNames(2)...)...)
}

// The same for a system without links, where there may be no model either.
func TestWriteShardedIntoAFrozenFolderWithoutLinks(t *testing.T) {
	dir := t.TempDir()
	if err := freeze(dir, false); err != nil {
		t.Skip("folders cannot be made immutable: ", err)
	}
	defer func() { _ = freeze(dir, false) }()
	for _, stem := range []string{TransformersStem, DiffusersStem} {
		for k := 1; ; k++ {
			require.NoError(t, WriteSharded(dir, generation(3, 1), 1, nil, Stem(stem)))
			require.NoError(t, WriteFile(dir+"/"+DiffusersStem+".safetensors", generation(1, 9), nil))
			shards, err := splitShards(generation(3, 2), 1)
			require.NoError(t, err)
			steps := 0
			w := newShardWriter(dir, shards, newOptions([]Option{Stem(stem), onStep(func() {
				if steps++; steps == k {
					require.NoError(t, freeze(dir, true))
				}
			})}))
			require.NoError(t, w.stage(nil))
			err = w.commitWithoutLinks()
			w.discard()
			require.NoError(t, freeze(dir, false))
			set, openErr := OpenModel(dir, Stem(stem))
			now := found(t, set, openErr, map[byte]int{1: 3, 2: 3})
			if err == nil {
				assert.Equal(t, byte(2), now)
			} else {
				assert.ErrorIs(t, err, os.ErrPermission)
			}
			if steps < k {
				break
			}
		}
	}
}

// On Linux a file has no name before it is whole, where the file system can do
// that.
func TestNoNameBeforeItIsWhole(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR, 0o600)
	if err != nil {
		t.Skip("the file system has no files without a name: ", err)
	}
	require.NoError(t, unix.Close(fd))
	look := Entry{Name: "x", DType: U8, Write: func(w io.Writer) error {
		assertFiles(t, dir)
		_, err := w.Write([]byte{1})
		return err
	}}
	require.NoError(t, WriteFile(filepath.Join(dir, "x"), []Entry{look}, nil))
	assertFiles(t, dir, "x")
	for _, dir := range []string{filepath.Join(dir, "none"), "/proc"} { // which takes no files
		_, err = createNameless(dir)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.Error(t, WriteFile(filepath.Join(dir, "x"), nil, nil))
	}
}

// Nothing that was opened for a write is open after it, however it ended.
func TestNothingStaysOpen(t *testing.T) {
	systems(t, func(t *testing.T) {
		dir := t.TempDir()
		open := func() int {
			files, err := os.ReadDir("/proc/self/fd")
			require.NoError(t, err)
			return len(files)
		}
		write := func() {
			require.NoError(t, WriteFile(filepath.Join(dir, "x"), generation(1, 1), nil, Durable()))
			require.NoError(t, WriteSharded(dir, generation(2, 1), 1, nil, Durable()))
			broken := Entry{Name: "b", DType: U8, Write: func(io.Writer) error { return io.ErrUnexpectedEOF }}
			require.Error(t, WriteFile(filepath.Join(dir, "x"), []Entry{broken}, nil))
			require.Error(t, WriteSharded(dir, append(generation(2, 1), broken), 1, nil))
			require.Error(t, WriteFile(dir, generation(1, 1), nil))
		}
		write()
		before := open()
		for range 2 {
			write()
		}
		require.LessOrEqual(t, open(), before)
	})
}
