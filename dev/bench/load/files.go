package load

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/safetensors"
)

// The files that are measured.
const (
	baseFile    = "base"           // a model: 218 bf16 tensors
	adapterFile = "adapter"        // on all of its linear layers: 336 f32 tensors
	header1k    = "1,000 tensors"  // small ones
	header50k   = "50,000 tensors" // small ones
)

// files creates input files on demand, and paths for output files.
type files struct {
	dir  string
	size int64 // of base
	made map[string]*file
}

// file is one that is read.
type file struct {
	name   string
	path   string
	size   int64
	header int64 // of size
}

// data returns the size of the tensors in bytes.
func (f *file) data() int64 { return f.size - f.header }

// open returns a file, in the page cache.
func (s *files) open(name string) (*file, error) {
	if f := s.made[name]; f != nil {
		return f, nil
	}
	f := &file{name: name, path: filepath.Join(s.dir, fmt.Sprintf("%d.safetensors", len(s.made)))}
	entries := s.entries(name)
	if err := safetensors.WriteFile(f.path, entries, map[string]string{"format": "pt"}); err != nil {
		return nil, err
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	f.size, f.header = info.Size(), info.Size()
	for i := range entries {
		n, err := entries[i].Size()
		if err != nil {
			return nil, err
		}
		f.header -= n
	}
	if s.made == nil {
		s.made = map[string]*file{}
	}
	s.made[name] = f
	return f, copyTo(io.Discard, f.path)
}

func (s *files) entries(name string) []safetensors.Entry {
	m := llama(s.size)
	switch name {
	case baseFile:
		return m.base()
	case adapterFile:
		return m.adapter()
	case header1k:
		return experts(1000)
	default:
		return experts(50000)
	}
}

// place returns the path of an operation's output and waits until the disk is idle.
func (s *files) place() (string, error) {
	// Flush pending writes of the previous row first: removing such a file would keep the disk busy well into the next
	// row.
	if err := settle(s.dir); err != nil {
		return "", err
	}
	if err := s.clear(); err != nil {
		return "", err
	}
	return s.output(), settle(s.dir)
}

func (s *files) output() string { return filepath.Join(s.dir, "new") }

// clear removes the output of operations.
func (s *files) clear() error { return os.RemoveAll(s.output()) }

func copyTo(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	defer f.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return err
}
