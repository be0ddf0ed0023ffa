package cache

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/safetensors/torchfile"
	"github.com/lorafuse/lorafuse/tensor"
)

// The metadata of an entry. Python's readers know the first and ignore the
// rest.
const (
	typeKey   = "type"
	typeValue = "embeddings"
	keyKey    = "lorafuse_key"    // what the entry was made of: see makeKey
	recipeKey = "lorafuse_recipe" // the same for people: see record
	sumKey    = "lorafuse_crc32"  // of the tensors: see checksum
)

// SaveEmbeddings writes tensors to a safetensors file with the metadata
// {"type": "embeddings"}, byte for byte as the function of that name of the
// Python trainers does. The file replaces an old one whole or not at all. It
// fails with ErrTensor for a tensor whose bytes are not those of its shape, and
// as safetensors.WriteFile does.
func SaveEmbeddings(path string, tensors map[string]tensor.Tensor) error {
	return save(path, tensors, map[string]string{typeKey: typeValue})
}

func save(path string, t tensors, metadata map[string]string) error {
	entries := make([]safetensors.Entry, 0, len(t))
	for _, name := range slices.Sorted(maps.Keys(t)) {
		x := t[name]
		if err := x.Check(); err != nil {
			return fmt.Errorf("cache: %s: %s: %w: %w", path, name, ErrTensor, err)
		}
		dtype, err := safetensors.ParseDType(x.DType.String())
		if err != nil {
			return fmt.Errorf("cache: %s: %s: %w", path, name, err)
		}
		entries = append(entries, safetensors.Entry{Name: name, DType: dtype, Shape: x.Shape, Data: x.Data})
	}
	if err := safetensors.WriteFile(path, entries, metadata); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}

// LoadEmbeddings reads all tensors of a file, into memory of their own; its
// metadata is not looked at. Where path ends in .safetensors and is not there,
// the .pt file of the same name is read, in which a tensor saved alone has the
// name torchfile.BareName. It fails as torchfile.OpenAny does, and for dtypes
// that package tensor does not have.
func LoadEmbeddings(path string) (map[string]tensor.Tensor, error) {
	f, _, err := torchfile.OpenAny(path)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	in := named{file: f, names: map[string]string{}}
	for _, name := range f.Names() {
		in.names[name] = name
	}
	t, err := in.read()
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return t, nil
}

// named are tensors of a file under names that may differ from the file's.
type named struct {
	file  *safetensors.File
	names map[string]string // ours → the file's
}

// shapes are what the header says; what the file lacks is left out.
func (n named) shapes() (shapes, error) {
	s := shapes{}
	for ours, theirs := range n.names {
		if !n.file.Has(theirs) {
			continue
		}
		v, err := n.file.Lookup(theirs)
		if err != nil {
			return nil, err
		}
		s[ours] = typed{v.DType.String(), slices.Clone(v.Shape)}
	}
	return s, nil
}

func (n named) read() (tensors, error) {
	t := tensors{}
	for ours, theirs := range n.names {
		v, err := n.file.Lookup(theirs)
		if err != nil {
			return nil, err
		}
		dtype, err := tensor.ParseDType(v.DType.String())
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", n.file.Path(), theirs, err)
		}
		x, err := tensor.New(dtype, v.Shape...)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", n.file.Path(), theirs, err)
		}
		if n, err := v.ReadAt(x.Data, 0); n < len(x.Data) {
			return nil, err
		}
		t[ours] = x
	}
	return t, nil
}

// checksum is the CRC-32 of names, dtypes, shapes and bytes. It notices what
// disks and copies do to a file, at many times the speed of reading it.
func checksum(t tensors) string {
	sum := crc32.NewIEEE()
	for _, name := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintln(sum, name, t[name].DType, t[name].Shape)
		io.Copy(sum, bytes.NewReader(t[name].Data)) // never fails
	}
	return fmt.Sprintf("%08x", sum.Sum32())
}
