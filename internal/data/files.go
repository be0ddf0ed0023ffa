package data

import (
	"io"
	"io/fs"
	"os"

	"github.com/lorafuse/lorafuse/safetensors"
)

// stat describes a file, in Files if there are some.
func (o *Options) stat(name string) (fs.FileInfo, error) {
	if o.Files != nil {
		return fs.Stat(o.Files, name)
	}
	return os.Stat(name)
}

// open opens a file to read it once.
func (o *Options) open(name string) (io.ReadCloser, error) {
	if o.Files != nil {
		return o.Files.Open(name)
	}
	return os.Open(name)
}

// readFile reads a whole file.
func (o *Options) readFile(name string) ([]byte, error) {
	if o.Files != nil {
		return fs.ReadFile(o.Files, name)
	}
	return os.ReadFile(name)
}

// openTensors opens a file of token ids, which is mapped unless it is in Files.
func (o *Options) openTensors(name string) (*safetensors.File, error) {
	if o.Files == nil {
		return safetensors.Open(name)
	}
	raw, err := fs.ReadFile(o.Files, name)
	if err != nil {
		return nil, err
	}
	return safetensors.FromBytes(raw)
}
