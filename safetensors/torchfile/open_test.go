package torchfile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/safetensors/torchfile"
)

func copyGolden(t testing.TB, name, to string) {
	raw, err := os.ReadFile(goldenPath(name))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, raw, 0o600))
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	for _, open := range []func(string) error{
		func(path string) error { _, err := torchfile.Open(path); return err },
		func(path string) error { _, err := torchfile.Scalars(path); return err },
		func(path string) error { _, _, err := torchfile.OpenAny(path); return err },
		torchfile.Verify,
	} {
		require.ErrorIs(t, open(dir), safetensors.ErrNotRegular)
		require.ErrorIs(t, open(filepath.Join(dir, "missing.pt")), fs.ErrNotExist)
		for _, name := range []string{"module.pt", "short_data.pt"} {
			err := open(filepath.Join("testdata/refused", name))
			if name == "short_data.pt" && err == nil {
				continue // Scalars does not look at storages
			}
			require.Error(t, err)
			require.ErrorContains(t, err, name)
		}
	}
	_, err := torchfile.Open("testdata/read/dtypes.safetensors")
	require.ErrorIs(t, err, torchfile.ErrNotTorch)
	require.ErrorContains(t, err, "safetensors")
	_, err = torchfile.Scalars("testdata/refused/cycle.pt")
	require.ErrorIs(t, err, torchfile.ErrPickle)
	require.ErrorIs(t, torchfile.Verify("testdata/refused/tuple_key.pt"), torchfile.ErrName)

	if runtime.GOOS != "windows" && os.Getuid() != 0 {
		path := filepath.Join(dir, "secret.pt")
		copyGolden(t, "dtypes", path)
		require.NoError(t, os.Chmod(path, 0))
		_, err := torchfile.Open(path)
		require.ErrorIs(t, err, fs.ErrPermission)
	}
}

// Every prefix of a file is too short, and none is a crash.
func TestPrefixes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pt")
	for _, name := range []string{"nested", "legacy_nested", "zip_deflated"} {
		raw, err := os.ReadFile(goldenPath(name))
		require.NoError(t, err)
		for n := 0; n < len(raw); n += 1 + n/16 {
			require.NoError(t, os.WriteFile(path, raw[:n], 0o600))
			_, err := torchfile.Open(path)
			var format *torchfile.FormatError
			require.True(t, errors.As(err, &format), "%s[:%d]: %v", name, n, err)
		}
	}
}

// A view of any kind fails once its file is closed, and lives as long as it is
// used.
func TestClose(t *testing.T) {
	for _, name := range []string{"views", "zip_deflated", "big_endian_deflated"} {
		f, err := torchfile.Open(goldenPath(name))
		require.NoError(t, err)
		for _, tensor := range f.Names() {
			v := lookUp(t, f, tensor)
			require.NoError(t, v.WithBytes(func([]byte) error {
				require.ErrorIs(t, f.Close(), safetensors.ErrInUse)
				return nil
			}))
		}
		v := lookUp(t, f, f.Names()[0])
		require.NoError(t, f.Close())
		require.NoError(t, f.Close())
		_, err = v.ReadAt(make([]byte, 1), 0)
		require.ErrorIs(t, err, safetensors.ErrClosed)
		require.Nil(t, v.Bytes())
	}
}

// A file that is cut short under our hands is an error where its pages are gone.
func TestTruncatedWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be cut")
	}
	for _, name := range []string{"views", "zip_deflated"} {
		path := filepath.Join(t.TempDir(), "x.pt")
		copyGolden(t, name, path)
		f, err := torchfile.Open(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, 0))
		for _, tensor := range []string{"transposed", "rows"} {
			err := lookUp(t, f, tensor).WithBytes(func(data []byte) error {
				_ = bytes.Clone(data)
				return nil
			})
			require.ErrorIs(t, err, safetensors.ErrFault, name)
		}
	}
}

func TestErrorText(t *testing.T) {
	_, err := torchfile.Open("testdata/refused/evil_system.pt")
	require.EqualError(t, err, `torchfile: testdata/refused/evil_system.pt: archive/data.pkl: global is not allowed at byte 13 (GLOBAL): found "posix.system", expected tensors in dicts and lists only; in Python, save model.state_dict() and no other objects`)
	_, err = torchfile.Open("testdata/refused/short_data.pt")
	require.EqualError(t, err, `torchfile: testdata/refused/short_data.pt: archive/data/0: tensor "a": storage does not have the size that it claims: found 15 bytes, expected 4 elements of 4 bytes`)
	require.EqualError(t, &torchfile.FormatError{Rule: torchfile.ErrZip, Expected: "more"}, "torchfile: bad zip archive: expected more")
	require.EqualError(t, &torchfile.FormatError{Rule: torchfile.ErrZip}, "torchfile: bad zip archive")
	_, err = torchfile.Open("testdata/refused/plain0.pt")
	require.ErrorContains(t, err, "begin with")
}
