package torchfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors/torchfile"
)

// folder makes files: of a golden by name, of text that begins with "=".
func folder(t testing.TB, files map[string]string) string {
	dir := t.TempDir()
	for name, from := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		if from[0] == '=' {
			require.NoError(t, os.WriteFile(path, []byte(from[1:]), 0o600))
			continue
		}
		raw, err := os.ReadFile(filepath.Join("testdata/read", from))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, raw, 0o600))
	}
	return dir
}

func TestOpenAny(t *testing.T) {
	const pt, st, legacy = "bare_list.pt", "bare_list.safetensors", "legacy_two.pt"
	for name, c := range map[string]struct {
		files  map[string]string
		path   string
		opened string // path, "" for an error
		format string
		why    string // or what the error says
	}{
		"there":                   {map[string]string{"x.safetensors": st, "x.pt": "=corrupt"}, "x.safetensors", "x.safetensors", "safetensors", ""},
		"pt":                      {map[string]string{"x.pt": pt}, "x.safetensors", "x.pt", "torch zip", "x.safetensors does not exist"},
		"pth":                     {map[string]string{"x.pth": legacy}, "x.safetensors", "x.pth", "torch legacy", "x.safetensors does not exist"},
		"bin":                     {map[string]string{"x.bin": pt}, "x.safetensors", "x.bin", "torch zip", "x.safetensors does not exist"},
		"ckpt":                    {map[string]string{"x.ckpt": pt}, "x.safetensors", "x.ckpt", "torch zip", "x.safetensors does not exist"},
		"order":                   {map[string]string{"x.ckpt": pt, "x.bin": pt, "x.pth": legacy}, "x.safetensors", "x.pth", "torch legacy", "x.safetensors does not exist; not looked at: x.bin, x.ckpt"},
		"dots":                    {map[string]string{"x.en.txt.pt": pt, "x.pt": "=corrupt"}, "x.en.txt.safetensors", "x.en.txt.pt", "torch zip", "x.en.txt.safetensors does not exist"},
		"corrupt":                 {map[string]string{"x.safetensors": "=corrupt", "x.pt": pt}, "x.safetensors", "", "", "header"},
		"empty":                   {map[string]string{"x.safetensors": "=", "x.pt": pt}, "x.safetensors", "", "", "too short"},
		"a torch file":            {map[string]string{"x.safetensors": pt, "x.pt": pt}, "x.safetensors", "", "", "name it .pt"},
		"a folder":                {map[string]string{"x.safetensors/y": pt, "x.pt": pt}, "x.safetensors", "", "", "a folder"},
		"corrupt fallback":        {map[string]string{"x.pt": "=corrupt", "x.bin": pt}, "x.safetensors", "", "", "x.pt"},
		"none":                    {map[string]string{"y.pt": pt}, "x.safetensors", "", "", "none of"},
		"asked for pt":            {map[string]string{"x.pt": pt, "x.safetensors": "=corrupt"}, "x.pt", "x.pt", "torch zip", ""},
		"asked for bin, legacy":   {map[string]string{"x.bin": legacy}, "x.bin", "x.bin", "torch legacy", ""},
		"asked for bin, missing":  {map[string]string{"x.safetensors": st}, "x.bin", "", "", "x.bin"},
		"safetensors as pt":       {map[string]string{"x.pt": st}, "x.pt", "x.pt", "safetensors", "x.pt is a safetensors file by its content"},
		"safetensors as fallback": {map[string]string{"x.pt": st}, "x.safetensors", "x.pt", "safetensors", "x.safetensors does not exist; x.pt is a safetensors file by its content"},
		"no extension":            {map[string]string{"x": st}, "x", "x", "safetensors", ""},
		"other extension":         {map[string]string{"x.model": pt}, "x.model", "x.model", "torch zip", ""},
		"other content":           {map[string]string{"x.ckpt": "=GGUF"}, "x.ckpt", "", "", "a GGUF file"},
		"broken safetensors":      {map[string]string{"x.bin": "=\x09\x00\x00\x00\x00\x00\x00\x00{\"broken\""}, "x.bin", "", "", "JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, c.files)
			f, source, err := torchfile.OpenAny(filepath.Join(dir, c.path))
			if c.opened == "" {
				require.ErrorContains(t, err, c.why)
				require.Zero(t, source)
				require.Equal(t, name == "none" || name == "asked for bin, missing", isNotExist(err))
				return
			}
			require.NoError(t, err)
			defer f.Close()
			require.Equal(t, torchfile.Source{Path: filepath.Join(dir, c.opened), Format: c.format, Fallback: c.opened != c.path, Why: c.why}, source)
			require.Equal(t, source.Path, f.Path())
		})
	}
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// What exists is not passed over because it may not be read or leads nowhere.
func TestOpenAnyDoesNotLookOn(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs links and permissions")
	}
	dir := folder(t, map[string]string{"x.pt": "bare_list.pt", "y.bin": "bare_list.pt"})
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "x.safetensors")))
	_, _, err := torchfile.OpenAny(filepath.Join(dir, "x.safetensors"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "x.safetensors")

	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "y.pt")))
	_, _, err = torchfile.OpenAny(filepath.Join(dir, "y.safetensors"))
	require.ErrorContains(t, err, "y.pt")

	require.NoError(t, os.Symlink("x.pt", filepath.Join(dir, "z.pt")))
	f, _, err := torchfile.OpenAny(filepath.Join(dir, "z.safetensors"))
	require.NoError(t, err)
	require.NoError(t, f.Close())

	// A path through a file is no path on any system; neither is what may not be
	// searched.
	for _, through := range []string{"x.pt/x.safetensors"} {
		_, _, err = torchfile.OpenAny(filepath.Join(dir, through))
		require.Error(t, err)
		require.NotErrorIs(t, err, fs.ErrNotExist)
	}
	_, _, err = torchfile.OpenFirst(filepath.Join(dir, "a.safetensors"), filepath.Join(dir, "x.pt/a.pt"))
	require.Error(t, err)
	require.NotErrorIs(t, err, fs.ErrNotExist)

	if os.Getuid() == 0 {
		return // may read everything
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s.safetensors"), nil, 0))
	copyGolden(t, "bare_list", filepath.Join(dir, "s.pt"))
	_, _, err = torchfile.OpenAny(filepath.Join(dir, "s.safetensors"))
	require.ErrorIs(t, err, fs.ErrPermission)
}
