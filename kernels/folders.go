package kernels

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

// folders holds the sources of a device: those of its own folder, and those of folder
// shared, which all devices have.
type folders struct {
	root fs.FS
	own  string // "cuda" or "metal"; also the extension of its files
}

var extensions = map[string]string{"cuda": ".cu", "metal": ".metal"}

// read returns the text of a source or a header.
func (f folders) read(name string) ([]byte, error) {
	raw, err := fs.ReadFile(f.root, path.Join(f.own, name))
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = fs.ReadFile(f.root, path.Join("shared", name))
	}
	return raw, err
}

// files returns the sources, without headers.
func (f folders) files() (names []string, err error) {
	for _, pattern := range []string{f.own + "/*" + extensions[f.own], "shared/*.cu"} {
		found, err := fs.Glob(f.root, pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			names = append(names, path.Base(name))
		}
	}
	return names, nil
}

// stem returns the name of a file without its extension.
func stem(name string) string { return strings.TrimSuffix(name, path.Ext(name)) }
