package llamacpp

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// layout is the version of the folders that [Folder] makes.
const layout = 1

// Folder returns the model folder of a GGUF file: config.json, tokenizer, chat template,
// and an index that names the file, which holds the weights. The folder is in the cache
// of the user, under a name that changes with the file. Errors: the errors of gguf.Open,
// ErrUnsupported, gguf.ErrMissing, gguf.ErrValue.
func Folder(path string) (string, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	root, err := os.UserCacheDir()
	if err != nil {
		root = os.TempDir()
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%d\n%s\n%d\n%d", layout, full, info.Size(), info.ModTime().UnixNano()))
	dir := filepath.Join(root, "lorafuse", "gguf", fmt.Sprintf("%s-%x", strings.TrimSuffix(filepath.Base(path), ".gguf"), key[:8]))
	if _, err := os.Stat(filepath.Join(dir, weights.GGUFIndex)); err == nil {
		return dir, nil
	}
	files, err := folderFiles(f, full)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return "", err
	}
	return dir, fsatomic.ReplaceDir(dir, func(temp string) error {
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(temp, name), data, 0o666); err != nil {
				return err
			}
		}
		return nil
	})
}

// folderFiles returns the contents of the folder of a file.
func folderFiles(f *gguf.File, path string) (map[string][]byte, error) {
	i, err := newImporter(f)
	if err != nil {
		return nil, err
	}
	i.read()
	index := weights.GGUF{File: path, Tensors: i.tensors()}
	if i.err != nil {
		return nil, i.err
	}
	files := map[string][]byte{}
	for name, content := range map[string]any{"config.json": i.config, weights.GGUFIndex: index} {
		if files[name], err = json.MarshalIndent(content, "", "  "); err != nil {
			return nil, err
		}
	}
	if _, err := model.ParseConfig(files["config.json"]); err != nil {
		return nil, err
	}
	return files, errors.Join(tokenizerFiles(f, files))
}
