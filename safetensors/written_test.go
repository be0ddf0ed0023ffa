package safetensors

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Files of scripts/make_safetensors_goldens.py: what the Hugging Face writers
// make of odd names, empty tensors, scalars, types of less than a byte, one metadata key, and
// of all 22 element types comes out the same, byte for byte.
func TestWriteAsTheReferenceDoes(t *testing.T) {
	paths, err := filepath.Glob("testdata/written/*.safetensors")
	require.NoError(t, err)
	require.Len(t, paths, 12)
	seen := map[DType]bool{}
	for _, path := range paths {
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		f, err := Open(path)
		require.NoError(t, err, path)
		var entries, views []Entry
		for _, name := range f.Names() {
			v := lookup(t, f, name)
			seen[v.DType] = true
			entries = append(entries, Entry{Name: v.Name, DType: v.DType, Shape: v.Shape, Data: v.Bytes()})
			views = append(views, v.Entry())
		}
		slices.Reverse(entries)
		var got bytes.Buffer
		require.NoError(t, Write(&got, entries, f.Metadata()))
		assert.Equal(t, string(want), got.String(), path)

		again := filepath.Join(t.TempDir(), "again")
		require.NoError(t, WriteFile(again, views, f.Metadata()))
		written, err := os.ReadFile(again)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(written), path)
		require.NoError(t, f.Close())
	}
	assert.Len(t, seen, 22)
}

// reference is a folder that another library has written, with the order in
// which it was given the tensors.
type reference struct {
	dir   string
	name  []NameOption
	files []string
	set   *Set
	shard int64
	order []Entry
}

func openReference(t *testing.T, dir string, name ...NameOption) *reference {
	t.Helper()
	r := &reference{dir: filepath.Join("testdata/sharded", dir), name: name}
	text, err := os.ReadFile(filepath.Join(r.dir, "order.json"))
	require.NoError(t, err)
	var order struct {
		Shard int64
		Order []string
	}
	require.NoError(t, json.Unmarshal(text, &order))
	r.shard = order.Shard
	r.set, err = OpenModel(r.dir, name...)
	require.NoError(t, err)
	t.Cleanup(func() { r.set.Close() })
	for _, name := range order.Order {
		v, err := r.set.Lookup(name)
		require.NoError(t, err)
		r.order = append(r.order, v.Entry())
	}
	files, err := os.ReadDir(r.dir)
	require.NoError(t, err)
	for _, f := range files {
		if f.Name() != "order.json" {
			r.files = append(r.files, f.Name())
		}
	}
	return r
}

// The same tensors in the same order and shards of the same size give the folder
// that transformers 5.23, diffusers 0.42 and huggingface_hub 2.4 write: names,
// index and shards, byte for byte.
func TestWriteShardedAsTheLibrariesDo(t *testing.T) {
	for dir, name := range map[string][]NameOption{
		"transformers":      nil,
		"transformers-fp16": {Variant("fp16")},
		"diffusers":         {Stem(DiffusersStem)},
		"diffusers-fp16":    {Stem(DiffusersStem), Variant("fp16")},
		"hub-adapter_model": {Stem(AdapterStem)},
		"hub-text_encoder":  {Stem("text_encoder")},
	} {
		t.Run(dir, func(t *testing.T) {
			want := openReference(t, dir, name...)
			assert.Len(t, want.files, 6)
			got := t.TempDir()
			opts := []Option{}
			for _, o := range name {
				opts = append(opts, o)
			}
			require.NoError(t, WriteSharded(got, want.order, want.shard, map[string]string{"format": "pt"}, opts...))
			assertFiles(t, got, want.files...)
			for _, file := range want.files {
				a, err := os.ReadFile(filepath.Join(want.dir, file))
				require.NoError(t, err)
				b, err := os.ReadFile(filepath.Join(got, file))
				require.NoError(t, err)
				assert.Equal(t, string(a), string(b), file)
			}
			set, err := OpenModel(got, name...)
			require.NoError(t, err)
			assert.Equal(t, want.set.Names(), set.Names())
			require.NoError(t, set.Close())
		})
	}
}

// A variant's index stands under other names in what huggingface_hub and old
// versions of diffusers have written.
func TestOpenModelFindsOtherNamesOfAVariant(t *testing.T) {
	for _, index := range []string{
		"model.safetensors.index.fp16.json", "model.fp16.safetensors.index.json", "model.safetensors.fp16.index.json",
	} {
		dir := model(t, "", map[string]string{"model-00001-of-00001.fp16.safetensors": "ab"})
		text := `{"metadata":{},"weight_map":{"a":"model-00001-of-00001.fp16.safetensors"}}`
		require.NoError(t, os.WriteFile(filepath.Join(dir, index), []byte(text), 0o600))
		set, err := OpenModel(dir, Variant("fp16"))
		require.NoError(t, err, index)
		assert.Equal(t, []string{"a", "b"}, set.Names())
		require.NoError(t, set.Close())
		_, err = OpenModel(dir)
		assert.ErrorIs(t, err, os.ErrNotExist, "a variant is not the model")
		_, err = OpenModel(dir, Variant("bf16"))
		assert.ErrorIs(t, err, os.ErrNotExist)

		require.NoError(t, WriteSharded(dir, letters("xyz"), 1, nil, Variant("fp16")))
		assertFiles(t, dir, "model.fp16-00001-of-00003.safetensors", "model.fp16-00002-of-00003.safetensors", "model.fp16-00003-of-00003.safetensors", "model.safetensors.index.fp16.json")
	}
}

func TestOpenModelSaysWhatIsThere(t *testing.T) {
	dir := model(t, "", map[string]string{"diffusion_pytorch_model.safetensors": "a", "x.safetensors": "b"})
	_, err := OpenModel(dir)
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, dir+" holds neither model.safetensors nor model.safetensors.index.json, but diffusion_pytorch_model.safetensors, x.safetensors: ")
	_, err = OpenModel(dir, Stem(AdapterStem), Variant("b"))
	assert.ErrorContains(t, err, "neither adapter_model.b.safetensors nor adapter_model.safetensors.index.b.json, but ")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "y.safetensors.index.json"), nil, 0o600))
	_, err = OpenModel(dir)
	assert.ErrorContains(t, err, ", but diffusion_pytorch_model.safetensors, x.safetensors, y.safetensors.index.json: ")
	for _, name := range []string{"1", "2"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".safetensors.index.json"), nil, 0o600))
	}
	_, err = OpenModel(dir)
	assert.ErrorContains(t, err, ", but 1.safetensors.index.json, 2.safetensors.index.json, diffusion_pytorch_model.safetensors, …: ")
	_, err = OpenModel(t.TempDir())
	assert.ErrorContains(t, err, "model.safetensors.index.json: file does not exist")

	set, err := OpenModel(dir, Stem(DiffusersStem))
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, set.Names())
	require.NoError(t, set.Close())
}

// Where a folder has a file and an index, each library has its own mind.
func TestOpenModelWithFileAndIndex(t *testing.T) {
	for stem, want := range map[string]string{TransformersStem: "x", DiffusersStem: "a", AdapterStem: "a"} {
		dir := model(t, "", map[string]string{stem + ".safetensors": "x", "s.safetensors": "a"})
		require.NoError(t, os.WriteFile(filepath.Join(dir, stem+".safetensors.index.json"), []byte(`{"weight_map":{"a":"s.safetensors"}}`), 0o600))
		set, err := OpenModel(dir, Stem(stem))
		require.NoError(t, err)
		assert.Equal(t, []string{want}, set.Names(), stem)
		require.NoError(t, set.Close())
	}
}

func TestModelNames(t *testing.T) {
	for _, bad := range [][]NameOption{
		{Stem("")}, {Stem(""), Variant("fp16")}, {Stem("../model")}, {Stem("a/b")}, {Stem(`a\b`)}, {Stem("C:m")}, {Stem("/m")}, {Stem("m\x00")},
		{Variant("../x")}, {Variant("a/b")}, {Variant(`..\x`)}, {Variant("\x00")},
	} {
		opts := []Option{}
		for _, o := range bad {
			opts = append(opts, o)
		}
		dir := t.TempDir()
		err := WriteSharded(filepath.Join(dir, "new"), letters("ab"), 1, nil, opts...)
		assert.ErrorIs(t, err, ErrShardPath)
		assertFiles(t, dir)
		_, err = OpenModel(dir, bad...)
		assert.ErrorIs(t, err, ErrShardPath)
	}

	n := modelName{stem: "m.x", variant: "fp16"}
	for name, want := range map[string]bool{
		"m.x.fp16-00001-of-00003.safetensors": true, "m.x.fp16-123456-of-123456.safetensors": true, "m.x.fp16-00001-of-00003.0123456789abcdef.safetensors": true,
		"m.x-00001-of-00003.fp16.safetensors": true, "m.x-00001-of-00003.safetensors": false, "m.x.fp16.safetensors": false, "m.x.fp16-0001-of-0003.safetensors": false,
		"m.x.fp16-00001-of-00003.0123456789abcdeg.safetensors": false, "m.x.fp16-00001-of-00003.bin": false, "amx.fp16-00001-of-00003.safetensors": false,
		"m.x.fp16-00001-of-00003.safetensors.bak": false, "am.x.fp16-00001-of-00003.safetensors": false, "m.x.fp16-00001-of-00003xsafetensors": false,
	} {
		assert.Equal(t, want, n.shards().MatchString(name), name)
	}
	assert.False(t, defaultName.shards().MatchString("model.fp16-00001-of-00003.safetensors"))
	assert.False(t, defaultName.shards().MatchString("model-00001-of-00003.fp16.safetensors"))
	assert.Equal(t, "m.x.fp16-00002-of-12345.safetensors", n.shard(2, 12345))
	assert.Equal(t, []string{ModelFile, ModelIndex}, []string{defaultName.file(), defaultName.index()})
}

// Neither a model of another stem nor a variant is touched, or read.
func TestModelsShareAFolder(t *testing.T) {
	dir := t.TempDir()
	names := map[string][]NameOption{
		"abc": nil, "de": {Variant("fp16")}, "fgh": {Stem(DiffusersStem)}, "i": {Stem(DiffusersStem), Variant("fp16")}, "jk": {Stem(AdapterStem)},
	}
	check := func() {
		t.Helper()
		for want, name := range names {
			set, err := OpenModel(dir, name...)
			require.NoError(t, err)
			assert.Equal(t, strings.Split(want, ""), set.Names())
			require.NoError(t, set.Close())
		}
	}
	write := func(tensors string) {
		t.Helper()
		opts := []Option{}
		for _, o := range names[tensors] {
			opts = append(opts, o)
		}
		require.NoError(t, WriteSharded(dir, letters(tensors), 1, nil, opts...))
	}
	for tensors := range names {
		write(tensors)
	}
	check()
	for old, tensors := range map[string]string{"abc": "lm", "de": "n", "fgh": "opq", "i": "rst", "jk": "u"} {
		names[tensors] = names[old]
		delete(names, old)
		write(tensors)
		check()
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, files, 2+1+1+3+1+3+1+1)
}
