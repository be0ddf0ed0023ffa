package weights

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// write makes a file of tensors of one byte, with these names.
func write(t testing.TB, path string, names ...string) {
	t.Helper()
	var entries []safetensors.Entry
	for i, n := range names {
		entries = append(entries, safetensors.Entry{Name: n, DType: safetensors.U8, Shape: []int{1}, Data: []byte{byte(i)}})
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, safetensors.WriteFile(path, entries, map[string]string{"from": filepath.Base(path), "format": "pt"}))
}

func text(t testing.TB, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
}

// TestFolders opens what transformers, PEFT and diffusers would, and else the
// only file that there is.
func TestFolders(t *testing.T) {
	const index = `{"metadata": {"total_size": 2}, "weight_map": {"a": "x-1.safetensors", "b": "x-2.safetensors"}}`
	for name, c := range map[string]struct {
		files      []string // tensors are called like them
		index      string
		want, stem string
	}{
		"model":                {[]string{"model.safetensors", "other.safetensors"}, "", "model.safetensors", "model"},
		"adapter first":        {[]string{"model.safetensors", "adapter_model.safetensors"}, "", "adapter_model.safetensors", "adapter_model"},
		"diffusers":            {[]string{"diffusion_pytorch_model.safetensors", "z.safetensors"}, "", "diffusion_pytorch_model.safetensors", "diffusion_pytorch_model"},
		"the only one":         {[]string{"weights.v2.safetensors"}, "", "weights.v2.safetensors", "weights.v2"},
		"hidden ones":          {[]string{"w.safetensors", ".w.safetensors"}, "", "w.safetensors", "w"},
		"index of the model":   {[]string{"x-1.safetensors", "x-2.safetensors"}, "model.safetensors.index.json", "model.safetensors.index.json", "model"},
		"index of other names": {[]string{"x-1.safetensors", "x-2.safetensors"}, "x.safetensors.index.json", "x.safetensors.index.json", "x"},
		"model before index":   {[]string{"model.safetensors", "x-1.safetensors", "x-2.safetensors"}, "model.safetensors.index.json", "model.safetensors", "model"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range c.files {
				write(t, filepath.Join(dir, f), f)
			}
			if c.index != "" {
				text(t, filepath.Join(dir, c.index), index)
			}
			s, err := Open(dir)
			require.NoError(t, err)
			defer s.Close()
			assert.Equal(t, []string{filepath.Join(dir, c.want), c.stem, dir}, []string{s.Path(), s.Stem, s.Folder})
			if c.want == c.index {
				assert.Equal(t, []string{"x-1.safetensors", "x-2.safetensors"}, s.Names())
				assert.Equal(t, []string{"a", "b"}, s.Absent())
			} else {
				assert.Equal(t, []string{c.want}, s.Names())
				assert.Nil(t, s.Index)
				assert.Empty(t, s.Absent())
			}
		})
	}
}

func TestFoldersWithoutOne(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir)
	assert.ErrorIs(t, err, ErrNoWeights)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	text(t, filepath.Join(dir, "training_args.bin"), "x")
	text(t, filepath.Join(dir, "optimizer.pt"), "x")
	_, err = Open(dir)
	assert.ErrorIs(t, err, ErrNoWeights)
	for _, n := range []string{"1", "2", "3", "4", "5"} {
		write(t, filepath.Join(dir, n+".safetensors"), n)
	}
	_, err = Open(dir)
	assert.ErrorIs(t, err, ErrAmbiguous)
	assert.ErrorContains(t, err, "1.safetensors, 2.safetensors, 3.safetensors, 4.safetensors, …; name one of them")
	// A broken file is an error and no reason to look on.
	text(t, filepath.Join(dir, "model.safetensors"), "nothing of the kind")
	_, err = Open(dir)
	assert.ErrorIs(t, err, safetensors.ErrHeaderTooLarge)
	_, err = Open(filepath.Join(dir, "no.safetensors"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Open(filepath.Join(dir, "model.safetensors", "x"))
	assert.Error(t, err)
}

func TestSet(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sub", "m-1.safetensors"), "b", "a")
	write(t, filepath.Join(dir, "m-2.safetensors"), "c")
	path := filepath.Join(dir, "m.safetensors.index.json")
	text(t, path, `{"weight_map": {"a": "sub/m-1.safetensors", "c": "m-2.safetensors", "b": "m-2.safetensors", "d": "m-2.safetensors"}, "metadata": {"total_size": 7}}`)
	s, err := Open(path)
	require.NoError(t, err)
	assert.Equal(t, []string{path, "m", ""}, []string{s.Path(), s.Stem, s.Folder})
	assert.Equal(t, []string{"c", "a", "b"}, s.Names())
	assert.Equal(t, 3, s.Len())
	assert.Equal(t, []string{"d"}, s.Absent())
	views, err := s.Views()
	require.NoError(t, err)
	assert.Equal(t, []string{"c", "a", "b"}, []string{views[0].Name, views[1].Name, views[2].Name})
	metadata, conflicts := s.Metadata()
	assert.Equal(t, map[string]string{"from": "m-2.safetensors", "format": "pt"}, metadata)
	assert.Equal(t, []string{"from"}, conflicts)
	assert.Equal(t, []string{"safetensors"}, s.Formats())
	assert.Empty(t, s.Why())
	assert.Equal(t, []string{
		`tensor "b" lies in sub/m-1.safetensors, m.safetensors.index.json says m-2.safetensors`,
		`tensor "d" is listed in m.safetensors.index.json, and m-2.safetensors does not hold it`,
		"total_size is 7 in m.safetensors.index.json, the tensors have 3 bytes",
	}, s.Disagreements())
	scalars, err := s.Scalars()
	require.NoError(t, err)
	assert.Empty(t, scalars)
	_, err = s.Lookup("aa")
	assert.ErrorIs(t, err, safetensors.ErrNotFound)
	require.NoError(t, s.Close())
	_, err = s.Lookup("a")
	assert.ErrorIs(t, err, safetensors.ErrClosed)
	_, err = s.Views()
	assert.ErrorIs(t, err, safetensors.ErrClosed)
}

// TestUnlisted: what a shard holds counts, and is told where the index does not
// know of it.
func TestUnlisted(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "m-1.safetensors"), "a", "b")
	text(t, filepath.Join(dir, "model.safetensors.index.json"), `{"weight_map": {"a": "m-1.safetensors"}}`)
	s, err := Open(dir)
	require.NoError(t, err)
	defer s.Close()
	assert.Equal(t, []string{`tensor "b" of m-1.safetensors is not in model.safetensors.index.json`}, s.Disagreements())
}

// TestBadIndexes: the index is judged by safetensors, whatever its shards are.
func TestBadIndexes(t *testing.T) {
	for text, want := range map[string]error{
		`[]`:               safetensors.ErrSyntax,
		`{"metadata": {}}`: safetensors.ErrIndex,
		`{"weight_map": {"a": "../x.safetensors"}}`:                       safetensors.ErrShardPath,
		`{"weight_map": {"a": "x.bin"}}`:                                  safetensors.ErrShardPath,
		`{"weight_map": {"a": "x.safetensors", "b": "gone.safetensors"}}`: safetensors.ErrMissingShard,
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "x.safetensors"), "a")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), []byte(text), 0o666))
		_, err := Open(dir)
		assert.ErrorIs(t, err, want, text)
	}
}

func TestNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.b.safetensors")
	write(t, path, "x")
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	s := New(f)
	assert.Equal(t, []string{"a.b", "x"}, []string{s.Stem, s.Names()[0]})
	assert.Equal(t, "safetensors", s.Source(0).Format)
	require.NoError(t, s.Close())
	_, err = f.Lookup("x")
	assert.ErrorIs(t, err, safetensors.ErrClosed)
}

func TestTotalSize(t *testing.T) {
	for text, want := range map[string]int64{`{"total_size": 7}`: 7, `{"total_size": 7.0}`: 7, `{"total_size": 0}`: 0} {
		got := totalSize([]byte(text))
		require.NotNil(t, got, text)
		assert.Equal(t, want, *got)
	}
	for _, text := range []string{``, `[]`, `{}`, `null`, `{"total_size": -1}`, `{"total_size": 1.5}`, `{"total_size": "x"}`, `{"total_size": 1e300}`, `{"total_size": null}`} {
		assert.Nil(t, totalSize([]byte(text)), text)
	}
}
