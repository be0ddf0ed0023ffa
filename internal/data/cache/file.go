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

// Metadata keys of an entry. Python readers know the first and ignore the rest.
const (
	typeKey   = "type"
	typeValue = "embeddings"
	keyKey    = "lorafuse_key"    // digest of recipe and sources: see makeKey
	recipeKey = "lorafuse_recipe" // recipe in readable form: see record
	sumKey    = "lorafuse_crc32"  // checksum of the tensors: see checksum
)

// SaveEmbeddings writes tensors to a safetensors file with the metadata {"type": "embeddings"}, byte for byte like the
// function of the same name in the Python trainers. The file is replaced atomically. It fails with ErrTensor if the
// data of a tensor does not match its shape, and like safetensors.WriteFile.
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

// LoadEmbeddings reads all tensors of a file into memory and ignores its metadata. If path ends in .safetensors and
// does not exist, it reads the .pt file of the same name; a tensor that was saved alone then has the name
// torchfile.BareName. It fails like torchfile.OpenAny, and for dtypes that package tensor does not support.
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

// named maps names of tensors to the names in a file.
type named struct {
	file  *safetensors.File
	names map[string]string // our name → name in the file
}

// shapes returns the shapes in the header. It omits tensors that the file does not have.
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

// checksum returns the CRC-32 of names, dtypes, shapes and data. It detects damage by disks and copies, and is much
// faster than reading the file.
func checksum(t tensors) string {
	sum := crc32.NewIEEE()
	for _, name := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintln(sum, name, t[name].DType, t[name].Shape)
		io.Copy(sum, bytes.NewReader(t[name].Data)) // never fails
	}
	return fmt.Sprintf("%08x", sum.Sum32())
}
