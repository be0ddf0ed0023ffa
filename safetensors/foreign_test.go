package safetensors

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The error for a file of another format names the format and what to do about
// it, whichever way the file is opened.
func TestForeignFiles(t *testing.T) {
	index := "{\n  \"metadata\": {\n    \"total_size\": 3\n  },\n  \"weight_map\": {}\n}\n"
	for name, c := range map[string]struct {
		content string
		rule    error
		is      Foreign
		says    string
	}{
		"empty":          {"", ErrHeaderTooSmall, Empty, "an empty file"},
		"index":          {index, ErrHeaderTooLarge, ShardIndex, "an index of shards: OpenIndex opens it together with them, and so does weights.Open"},
		"index, short":   {`{"weight_map":{}}`, ErrHeaderTooLarge, ShardIndex, "weights.Open"},
		"configuration":  {`{"model_type": "llama"}`, ErrHeaderTooLarge, JSON, "JSON and no file of tensors"},
		"two bytes":      {"{}", ErrHeaderTooSmall, JSON, "JSON"},
		"torch.save":     {"PK\x03\x04\x00\x00\x08\x08" + strings.Repeat("\x00", 99), ErrHeaderTooLarge, ZIP, "torchfile.Open opens it"},
		"zip, plausible": {"PK\x03\x04\x00\x00\x00\x00" + strings.Repeat("\x00", 99), ErrHeaderPastEnd, ZIP, "name it .pt"},
		"pickle":         {"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", ErrHeaderTooLarge, Pickle, "before PyTorch 1.6"},
		"GGUF":           {"GGUF\x03\x00\x00\x00\x23\x01", ErrHeaderTooLarge, GGUF, "a GGUF file"},
		"Git LFS":        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n", ErrHeaderTooLarge, LFSPointer, "git lfs pull"},
		"web page":       {"\n<!DOCTYPE html><html></html>", ErrHeaderTooLarge, WebPage, "a web page or the like"},
		"tar":            {strings.Repeat("x", 257) + "ustar" + strings.Repeat("x", 999), ErrHeaderTooLarge, Tar, "before 0.1.10"},
		"gzip":           {"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00", ErrHeaderPastEnd, Gzip, "gzip"},
		"other":          {"some text of a file", ErrHeaderTooLarge, Unrecognized, ""},
		"cut short":      {"\x10\x00\x00\x00\x00\x00\x00\x00{\"a\":", ErrHeaderPastEnd, Unrecognized, ""},
		"like a pickle":  {"\x80\x02\x00\x00\x00\x00\x00\x00{\"a\":", ErrHeaderPastEnd, Unrecognized, ""},
		"bad JSON":       {"\x02\x00\x00\x00\x00\x00\x00\x00{!", ErrSyntax, Unrecognized, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.safetensors")
			require.NoError(t, os.WriteFile(path, []byte(c.content), 0o600))
			_, ofPath := Open(path)
			_, ofBytes := FromBytes([]byte(c.content))
			_, ofReader := OpenReaderAt(strings.NewReader(c.content), int64(len(c.content)), "m")
			_, ofFS := OpenFS(fstest.MapFS{"m": {Data: []byte(c.content)}}, "m")
			for _, err := range []error{ofPath, ofBytes, ofReader, ofFS} {
				require.ErrorIs(t, err, c.rule)
				var f *FormatError
				require.ErrorAs(t, err, &f)
				assert.Equal(t, c.is, f.Foreign)
				assert.ErrorContains(t, err, c.says)
				assert.Equal(t, c.is != Unrecognized, strings.Contains(err.Error(), "; it is "), err)
			}
		})
	}
	_, err := Open(t.TempDir())
	require.ErrorIs(t, err, ErrNotRegular)
	assert.ErrorContains(t, err, "not a regular file; it is a folder: weights.Open opens the model in it")
}

// An index that is none says what it is; one that is broken is not called an
// index of itself.
func TestForeignIndexes(t *testing.T) {
	for content, says := range map[string]string{
		"":                           "it is an empty file",
		"version https://git-lfs.g…": "git lfs pull",
		"<html>":                     "a web page",
		`{"weight_map": {"a": "x.safetensors", }}`: "",
		"[]": "",
	} {
		path := filepath.Join(t.TempDir(), "model.safetensors.index.json")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err := OpenIndex(path)
		require.ErrorIs(t, err, ErrSyntax, content)
		assert.ErrorContains(t, err, says)
		assert.Equal(t, says != "", strings.Contains(err.Error(), "; it is "), err)
	}
}

func FuzzRecognize(f *testing.F) {
	for _, m := range magics {
		f.Add([]byte(strings.Repeat("x", m.at) + m.magic))
	}
	f.Add([]byte("{\"weight_map\""))
	f.Add([]byte{0x80, 2, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		is := Recognize(data)
		assert.Less(t, int(is), len(foreign))
		assert.NotEmpty(t, is.String())
		assert.Equal(t, len(data) == 0, is == Empty)
		if file, err := FromBytes(data); err == nil {
			assert.NoError(t, file.Close())
		}
	})
}
