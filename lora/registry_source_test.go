package lora

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
)

// busyFS is a folder into which somebody writes behind the first file that is read.
type busyFS struct {
	fs.StatFS
	write func()
}

func (b busyFS) ReadFile(name string) ([]byte, error) {
	data, err := fs.ReadFile(b.StatFS, name)
	if name == ConfigFile {
		b.write()
	}
	return data, err
}

// What changes while it is read is not taken, as its files may not belong together.
func TestReadWhileChanging(t *testing.T) {
	const original = "../testdata/lm/llama/adapters/lora"
	for name, write := range map[string]func(dir string) error{
		"touched":  func(dir string) error { return os.WriteFile(filepath.Join(dir, WeightsFile), nil, 0o666) },
		"replaced": func(dir string) error { return replace(filepath.Join(dir, ConfigFile)) },
		"removed":  func(dir string) error { return os.RemoveAll(dir) },
		"left":     func(string) error { return nil },
	} {
		dir := filepath.Join(t.TempDir(), "adapter")
		require.NoError(t, os.CopyFS(dir, os.DirFS(original)))
		s := source{dir: dir}
		stat, ok := os.DirFS(dir).(fs.StatFS)
		require.True(t, ok)
		a, err := s.readFrom(busyFS{stat, func() { assert.NoError(t, write(dir)) }}, ".")
		if name == "left" {
			require.NoError(t, err)
			continue
		}
		assert.Nil(t, a, name)
		if name != "removed" { // then the other file cannot be read
			require.ErrorIs(t, err, ErrChanged, name)
		}
		require.ErrorContains(t, err, dir, name)
	}
}

// replace puts another file of the same bytes and times in the place of one.
func replace(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", data, 0o666); err != nil {
		return err
	}
	if err := os.Chtimes(name+".new", info.ModTime(), info.ModTime()); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// What a registry keeps of an adapter does not keep the file in memory.
func TestStateLiesApart(t *testing.T) {
	m, err := model.Open("../testdata/peft/base/small-llama")
	require.NoError(t, err)
	defer m.Close()
	a, err := source{dir: "../testdata/peft/embedding/adapter"}.read()
	require.NoError(t, err)
	r := &Registry{weights: m, modelType: m.Config.ModelType, modules: m.Modules()}
	s, _, err := r.build(a)
	require.NoError(t, err)
	require.NotEmpty(t, s.Base)
	assert.Nil(t, s.adapter)
	for module, base := range s.Base {
		file, ok := a.Tensor(keyPrefix + module + ".base_layer.weight")
		require.True(t, ok)
		assert.Equal(t, file.Data, base.Data)
		assert.NotSame(t, &file.Data[0], &base.Data[0])
	}
}

// FuzzReference: what is taken for a reference has a name that stays in its folder,
// and digits of a digest.
func FuzzReference(f *testing.F) {
	for _, s := range []string{"sql", "org/sql-v1.0_x@3f2a", "a@", "@1", "../x", "a/./b", "a,b", "a\x00", "a@g", "a@1@2", "ä", "/x", "a//b", ".", "a..b", "con"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := parseReference(s)
		if err != nil {
			require.ErrorIs(t, err, ErrName)
			require.Zero(t, ref)
			return
		}
		require.Equal(t, s, ref.String())
		require.True(t, fs.ValidPath(ref.name))
		require.NotContains(t, ref.name, "..")
		require.False(t, strings.ContainsAny(ref.name, ",@\\: \x00") || strings.HasPrefix(ref.name, "."))
		require.LessOrEqual(t, len(ref.version), 64)
		for _, c := range ref.version {
			require.Contains(t, "0123456789abcdef", string(c))
		}
		table := &table{names: map[string][]*Version{ref.name: {{}}}}
		found, v, err := table.find(ref)
		if strings.Trim(ref.version, "0") != "" {
			require.ErrorIs(t, err, ErrNotFound)
			return
		}
		require.NoError(t, err)
		require.Same(t, table.names[ref.name][0], v)
		require.True(t, strings.HasPrefix(found.version, ref.version))
	})
}
