package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// localFile is a file of the folder that is pushed.
type localFile struct {
	name     string // in the repository
	path     string
	size     int64
	modified time.Time

	known   bool   // whether the Hub has answered for it
	ignored bool   // by .gitignore of the repository
	large   bool   // whether it goes to large storage
	oid     string // SHA-256 of a large file, git's SHA-1 of a small one
	remote  string // the same of the file in the repository, or ""
}

// sampleSize is how much of a file the Hub looks at to tell texts from other files.
const sampleSize = 512

// localFiles lists the files of the folder of a model or an adapter. Hidden files are left out, which note reports.
func localFiles(dir string, note func(string)) (files []*localFile, err error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s: no such folder%s", ErrFolder, dir, didYouMean(dir))
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%w: %s is a file, expected the folder of an adapter or a model", ErrFolder, dir)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	var hidden []string
	err = filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, at)
		if err != nil || relative == "." {
			return err
		}
		name := filepath.ToSlash(relative)
		if strings.HasPrefix(e.Name(), ".") {
			if e.IsDir() {
				hidden = append(hidden, name+"/")
				return filepath.SkipDir
			}
			hidden = append(hidden, name)
			return nil
		}
		if e.IsDir() {
			return nil
		}
		info, err := os.Stat(at) // of the file behind a link, as in the shared cache
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%w: %s is neither a file nor a link to one", ErrFolder, at)
		}
		files = append(files, &localFile{name: name, path: at, size: info.Size(), modified: info.ModTime()})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(hidden) > 0 && note != nil {
		note("hidden files are not pushed: " + few(hidden))
	}
	return files, checkFolder(dir, files)
}

// checkFolder returns ErrFolder unless the files are a complete adapter, model or pipeline.
func checkFolder(dir string, files []*localFile) error {
	has := func(name string) bool {
		return slices.ContainsFunc(files, func(f *localFile) bool { return f.name == name })
	}
	anyOf := func(ending string) bool {
		return slices.ContainsFunc(files, func(f *localFile) bool { return path.Ext(f.name) == ending && !strings.Contains(f.name, "/") })
	}
	switch {
	case has(adapterConfigFile) && !anyOf(weightsEnding) && !anyOf(".bin"):
		return fmt.Errorf("%w: %s has %s but no adapter_model.safetensors", ErrFolder, dir, adapterConfigFile)
	case has(indexFile):
		shards, err := shards(dir, indexFile)
		if err != nil {
			return err
		}
		for _, s := range shards {
			if !has(s) {
				return fmt.Errorf("%w: %s lacks %s, which %s lists", ErrFolder, dir, s, indexFile)
			}
		}
	case has(adapterConfigFile), has(configFile), has(pipelineFile), anyOf(".gguf"), anyOf(weightsEnding):
	case has("adapter/" + adapterConfigFile):
		return fmt.Errorf("%w: %s is the folder of a run; push %s", ErrFolder, dir, filepath.Join(dir, "adapter"))
	default:
		return fmt.Errorf("%w: %s has no %s, %s or weights", ErrFolder, dir, adapterConfigFile, configFile)
	}
	return nil
}

// sample returns the first bytes of the file.
func (f *localFile) sample() ([]byte, error) {
	in, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(io.LimitReader(in, sampleSize))
}

// hash computes the name of the contents in the repository.
func (f *localFile) hash() error {
	in, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer in.Close()
	var sum hash.Hash
	if f.large {
		sum = sha256.New()
	} else {
		sum = gitHash(f.size)
	}
	n, err := io.Copy(sum, in)
	if err == nil && n != f.size {
		err = f.unchanged()
	}
	f.oid = hex.EncodeToString(sum.Sum(nil))
	return err
}

// unchanged returns an error if the file has changed since it was listed.
func (f *localFile) unchanged() error {
	info, err := os.Stat(f.path)
	if err == nil && (info.Size() != f.size || !info.ModTime().Equal(f.modified)) {
		err = fmt.Errorf("%w: %s changed during the push; push again once it is complete", ErrFolder, f.path)
	}
	return err
}

// read returns the contents of a small file, which are those that were hashed.
func (f *localFile) read() ([]byte, error) {
	content, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	sum := gitHash(int64(len(content)))
	sum.Write(content)
	if hex.EncodeToString(sum.Sum(nil)) != f.oid {
		return nil, fmt.Errorf("%w: %s changed during the push; push again once it is complete", ErrFolder, f.path)
	}
	return content, nil
}
