package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// onStep has fn called between two changes of the folder: what it finds there
// is what a process that is killed at that point leaves behind.
func onStep(fn func()) Option { return optionFunc(func(o *options) { o.step = fn }) }

// generation makes n one-byte tensors that tell when they were written.
func generation(n int, value byte) []Entry {
	var entries []Entry
	for i := range n {
		entries = append(entries, Entry{Name: fmt.Sprintf("tensor.%03d", i), DType: U8, Shape: []int{1}, Data: []byte{value}})
	}
	return entries
}

// found says which generation a model is of, 0 where there is no model. It must
// be whole.
func found(t *testing.T, set *Set, err error, tensors map[byte]int) byte {
	t.Helper()
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrMissingShard) {
		return 0
	}
	require.NoError(t, err)
	defer set.Close()
	names := set.Names()
	require.NotEmpty(t, names)
	value := lookup(t, set, names[0]).Bytes()[0]
	for _, name := range names {
		require.Equal(t, value, lookup(t, set, name).Bytes()[0], "tensors of two models")
	}
	require.Len(t, names, tensors[value])
	require.Empty(t, set.Absent())
	return value
}

// asOthersRead opens the model as libraries do that look for the other one of
// file and index first.
func asOthersRead(dir string, n modelName) (*Set, error) {
	if !n.indexFirst() {
		if _, err := os.Stat(filepath.Join(dir, n.index())); err == nil {
			return OpenIndex(filepath.Join(dir, n.index()))
		}
	}
	f, err := Open(filepath.Join(dir, n.file()))
	if errors.Is(err, fs.ErrNotExist) {
		return OpenModel(dir, Stem(n.stem), Variant(n.variant))
	}
	if err != nil {
		return nil, err
	}
	return &Set{files: []*File{f}}, nil
}

// While one model replaces another, with any numbers of shards, every reader
// finds either the old or the new model.
func TestWriteShardedIsAlwaysOldOrNew(t *testing.T) {
	for _, name := range []modelName{defaultName, {TransformersStem, "fp16"}, {DiffusersStem, ""}, {DiffusersStem, "fp16"}} {
		opts := []Option{Stem(name.stem), Variant(name.variant)}
		for _, durable := range []bool{false, true} {
			if durable && name != defaultName {
				break // syncing takes its time
			}
			if durable {
				opts = append(opts, Durable())
			}
			dir := t.TempDir()
			tensors := map[byte]int{}
			value := byte(0)
			for _, n := range []int{1, 3, 3, 2, 3, 1, 1, 4, 4, 1, 2} {
				old := value
				value++
				tensors[value] = n
				steps := 0
				previous := old
				step := onStep(func() {
					steps++
					set, err := OpenModel(dir, Stem(name.stem), Variant(name.variant))
					now := found(t, set, err, tensors)
					require.Contains(t, []byte{old, value}, now, "%d shards after %d", n, tensors[old])
					require.GreaterOrEqual(t, now, previous, "there is no way back")
					previous = now
					set, err = asOthersRead(dir, name)
					require.Contains(t, []byte{old, value}, found(t, set, err, tensors), "another reader: %d shards after %d", n, tensors[old])
				})
				require.NoError(t, WriteSharded(dir, generation(n, value), 1, nil, append(opts, step)...))
				assert.GreaterOrEqual(t, steps, n)
				set, err := OpenModel(dir, Stem(name.stem), Variant(name.variant))
				assert.Equal(t, value, found(t, set, err, tensors))
				files, err := os.ReadDir(dir)
				require.NoError(t, err)
				assert.Len(t, files, n+min(n-1, 1), "nothing else is left")
			}
		}
	}
}

// The same holds after a process is killed at any step, then another one at any
// step, and then a third one completes.
func TestWriteShardedAfterCrashes(t *testing.T) {
	type killed struct{}
	write := func(dir string, n int, value byte, steps int) (wasKilled bool) {
		defer func() {
			if r := recover(); r != nil {
				require.Equal(t, killed{}, r)
				wasKilled = true
			}
		}()
		require.NoError(t, WriteSharded(dir, generation(n, value), 1, nil, onStep(func() {
			if steps--; steps == 0 {
				panic(killed{}) // files that have no name yet vanish, as they do with the process
			}
		})))
		return false
	}
	shards, every := []int{2}, 3
	if os.Getenv("LORAFUSE_LONG") != "" {
		shards, every = []int{1, 2, 3}, 1
	}
	for _, first := range shards {
		for _, second := range shards {
			for i := 1; ; i++ {
				dir := t.TempDir()
				tensors := map[byte]int{1: 2, 2: first, 3: second, 4: 2}
				require.False(t, write(dir, 2, 1, 0))
				if !write(dir, first, 2, i) {
					break
				}
				for j := 1 + i%every; ; j += every {
					copied := t.TempDir()
					require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
					wasKilled := write(copied, second, 3, j)
					set, err := OpenModel(copied)
					require.Contains(t, []byte{1, 2, 3}, found(t, set, err, tensors))
					require.False(t, write(copied, 2, 4, 0))
					set, err = OpenModel(copied)
					require.Equal(t, byte(4), found(t, set, err, tensors))
					assertFiles(t, copied, shardNames(2)...)
					if !wasKilled {
						break
					}
				}
			}
		}
	}
}

// Without hard links there is a moment without a model, never a mixture.
func TestWriteShardedWithoutLinks(t *testing.T) {
	for _, name := range []modelName{defaultName, {DiffusersStem, "fp16"}} {
		dir := t.TempDir()
		tensors := map[byte]int{9: 1, 1: 3, 2: 3}
		// An even older model must not come back while there is no index.
		require.NoError(t, WriteSharded(dir, generation(3, 1), 1, nil, Stem(name.stem), Variant(name.variant)))
		if name.indexFirst() {
			require.NoError(t, WriteFile(filepath.Join(dir, name.file()), generation(1, 9), nil))
		}
		var seen []byte
		o := newOptions([]Option{Stem(name.stem), Variant(name.variant), Durable(), onStep(func() {
			set, err := OpenModel(dir, Stem(name.stem), Variant(name.variant))
			seen = append(seen, found(t, set, err, tensors))
		})})
		shards, err := splitShards(generation(3, 2), 1)
		require.NoError(t, err)
		w := newShardWriter(dir, shards, o)
		require.NoError(t, w.stage(nil))
		require.NoError(t, w.commitWithoutLinks())
		want := []byte{0, 0, 0, 0, 2}
		if name.indexFirst() {
			want = append([]byte{1}, want...)
		}
		assert.Equal(t, want, seen)
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Len(t, files, 4)
	}
}

// A shard that is a link to another file system cannot be linked into the
// folder: WriteSharded does without.
func TestWriteShardedOverALinkToElsewhere(t *testing.T) {
	elsewhere, err := os.MkdirTemp("/dev/shm", "safetensors")
	if err != nil {
		t.Skip("no second file system: ", err)
	}
	defer os.RemoveAll(elsewhere)
	dir := t.TempDir()
	if err := os.Link(mustWrite(t, filepath.Join(elsewhere, "x")), filepath.Join(dir, "x")); err == nil {
		t.Skip("the folders are on one file system")
	}
	require.NoError(t, WriteSharded(dir, generation(2, 1), 1, nil))
	shard := defaultName.shard(2, 2)
	require.NoError(t, os.Remove(filepath.Join(dir, shard)))
	require.NoError(t, os.Symlink(filepath.Join(elsewhere, "blob"), filepath.Join(dir, shard)))
	require.NoError(t, WriteSharded(dir, generation(2, 2), 1, nil))
	set, err := OpenModel(dir)
	assert.Equal(t, byte(2), found(t, set, err, map[byte]int{2: 2}))
	assertFiles(t, elsewhere, "blob", "x")
	assertFiles(t, dir, shardNames(2)...)
}

func mustWrite(t *testing.T, path string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	return path
}

// The next save removes files left by dead writers and keeps files of others.
func TestWriteShardedRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	leftovers := []string{
		".model-00001-of-00002.safetensors.unfinished", ".model-00007-of-00009.safetensors.0123456789abcdef.unfinished", ".model.safetensors.unfinished",
		".model.safetensors.index.json.unfinished", "model-00001-of-00009.safetensors", "model-00003-of-00009.0123456789abcdef.safetensors",
	}
	others := []string{
		".model.fp16.safetensors.unfinished", ".adapter_model.safetensors.unfinished", ".model.safetensors.0123.unfinished", ".unfinished",
		"adapter_model-00001-of-00009.safetensors", "config.json", "model-00001-of-00009.fp16.safetensors", "model-00001-of-00009.safetensors.bak", "model.fp16.safetensors",
	}
	for _, name := range append(leftovers, others...) {
		mustWrite(t, filepath.Join(dir, name))
	}
	require.NoError(t, WriteSharded(dir, generation(2, 1), 1, nil))
	want := append(shardNames(2), others...)
	slices.Sort(want)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	var got []string
	for _, f := range files {
		if _, temporary := temporaryTarget(f.Name()); temporary && !slices.Contains(others, f.Name()) {
			if _, err := tryLock(nil); err != nil {
				continue // without locks nobody knows whether a writer lives
			}
		}
		got = append(got, f.Name())
	}
	assert.Equal(t, want, got)
}

// Failures to remove or write a file are errors that name it; the model is the
// old or the new one.
func TestWriteShardedErrors(t *testing.T) {
	tensors := map[byte]int{1: 2, 2: 2, 3: 1}
	folder := func(dir, name string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "full"), 0o777))
	}
	for _, c := range []struct {
		name    string
		prepare func(dir string)
		n       int
		want    byte
		err     string
	}{
		{"stale shard", func(dir string) { folder(dir, "model-00001-of-00009.safetensors") }, 2, 2, "model-00001-of-00009.safetensors"},
		{"stale file", func(dir string) { folder(dir, "model.safetensors") }, 2, 0, "model.safetensors"},
		{"shard", func(dir string) { folder(dir, "model-00002-of-00003.safetensors") }, 3, 1, "model-00002-of-00003.safetensors: not a regular file: found a folder"},
		{"index", func(dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, ModelIndex)))
			folder(dir, ModelIndex)
		}, 1, 3, ModelIndex},
	} {
		dir := t.TempDir()
		require.NoError(t, WriteSharded(dir, generation(2, 1), 1, nil))
		c.prepare(dir)
		value := byte(2)
		if c.n == 1 {
			value = 3
		}
		err := WriteSharded(dir, generation(c.n, value), 1, nil)
		assert.ErrorContains(t, err, c.err, c.name)
		if c.want == 0 { // the file, which transformers would read, is a folder
			continue
		}
		set, err := OpenModel(dir)
		assert.Equal(t, c.want, found(t, set, err, tensors), c.name)
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range files {
			assert.NotContains(t, f.Name(), unfinished)
		}
	}

	// The names of the interim are longer: an index of the largest size does
	// not have room for them, which is no reason to fail.
	dir := t.TempDir()
	short, err := encodeIndexOf(generation(2, 1))
	require.NoError(t, err)
	long := func(value byte) []Entry {
		entries := generation(2, value)
		for i := range entries {
			entries[i].Name += strings.Repeat("x", (maxIndex-len(short))/2)
		}
		return entries
	}
	text, err := encodeIndexOf(long(1))
	require.NoError(t, err)
	require.Greater(t, len(text)+2*17, maxIndex)
	require.NoError(t, WriteSharded(dir, long(1), 1, nil))
	require.NoError(t, WriteSharded(dir, long(2), 1, nil))
	set, err := OpenModel(dir)
	assert.Equal(t, byte(2), found(t, set, err, tensors))
	assertFiles(t, dir, shardNames(2)...)

	huge := generation(2, 1)
	huge[0].Name = strings.Repeat("x", maxIndex)
	written := false
	huge[1].Data, huge[1].Write = nil, func(w io.Writer) error { written = true; return nil }
	assert.ErrorIs(t, WriteSharded(dir, huge, 1, nil), ErrIndex)
	assert.False(t, written, "found out before anything is written")
}

func encodeIndexOf(entries []Entry) ([]byte, error) {
	shards, err := splitShards(entries, 1)
	if err != nil {
		return nil, err
	}
	return encodeIndex(shards, []string{defaultName.shard(1, 2), defaultName.shard(2, 2)}, defaultName.indexStyle())
}
