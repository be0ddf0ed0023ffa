package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Tensor is the entry of a tensor in a file.
type Tensor struct {
	Name string
	Type Type
	// Shape has the outermost axis first, as in PyTorch and unlike in the file.
	Shape  []int
	Offset int64 // in the file
}

// Elements returns the number of elements.
func (t *Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Size returns the number of bytes.
func (t *Tensor) Size() int { return t.Type.Bytes(t.Elements()) }

// File is an open file. It is safe for concurrent use.
type File struct {
	Path    string
	Tensors []Tensor // in the order of the file
	Keys    []KeyValue

	byName map[string]int
	byKey  map[string]int
	mapped *safetensors.File
	bytes  *safetensors.View // the whole file
}

// IsFile reports whether path names a file that begins like a GGUF file, or one that
// does not exist and whose name ends in .gguf.
func IsFile(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) && filepath.Ext(path) == ".gguf"
	}
	defer f.Close()
	var head [len(magic)]byte
	n, _ := f.Read(head[:])
	return string(head[:n]) == magic
}

// Open maps a file and reads its header: keys and tensors are checked, and all tensors
// are inside the file. Errors: ErrFormat, ErrTruncated, ErrUnsupported, and errors of
// the file system.
func Open(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("gguf: %s: found a folder or a device, expected a file", path)
	}
	whole := []safetensors.ExternalTensor{{Name: "file", DType: safetensors.U8, Shape: []int{int(info.Size())}}}
	mapped, err := safetensors.OpenExternal(path, whole, nil)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	f := &File{Path: path, mapped: mapped}
	if f.bytes, err = mapped.Lookup("file"); err == nil {
		err = f.bytes.WithBytes(f.parse)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gguf: %s: %w", path, err), mapped.Close())
	}
	return f, nil
}

// Close unmaps the file.
func (f *File) Close() error { return f.mapped.Close() }

// HasTensor reports whether the file has a tensor of that name.
func (f *File) HasTensor(name string) bool { _, ok := f.byName[name]; return ok }

// Tensor returns the tensor of a name. It fails with ErrMissing.
func (f *File) Tensor(name string) (*Tensor, error) {
	i, ok := f.byName[name]
	if !ok {
		names := make([]string, len(f.Tensors))
		for i := range f.Tensors {
			names[i] = f.Tensors[i].Name
		}
		return nil, fmt.Errorf("gguf: %s: tensor %q: %w%s", f.Path, name, ErrMissing, suggest.DidYouMean(name, names))
	}
	return &f.Tensors[i], nil
}

// WithBytes calls fn with the stored bytes of a tensor, which are valid until it
// returns. Its error is that of fn, or safetensors.ErrFault if the file has shrunk.
func (f *File) WithBytes(t *Tensor, fn func([]byte) error) error {
	return f.bytes.WithBytes(func(data []byte) error { return fn(data[t.Offset : t.Offset+int64(t.Size())]) })
}

// Float32s converts the elements of a tensor from number first on to float32. first and
// the length of dst are multiples of the block size of its type.
func (f *File) Float32s(dst []float32, t *Tensor, first int) error {
	n, size := t.Type.BlockSize()
	if first%n != 0 || len(dst)%n != 0 || first < 0 || first+len(dst) > t.Elements() {
		return fmt.Errorf("gguf: tensor %q: %d elements from %d on: %w", t.Name, len(dst), first, ErrFormat)
	}
	return f.WithBytes(t, func(data []byte) error {
		t.Type.float32s(dst, data[first/n*size:(first+len(dst))/n*size])
		return nil
	})
}

// Types returns the types of the tensors, each once, in order of their numbers.
func (f *File) Types() []Type {
	var all []Type
	for i := range f.Tensors {
		all = append(all, f.Tensors[i].Type)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
