package torchfile

import (
	"fmt"
	"io"
	"os"

	"github.com/lorafuse/lorafuse/safetensors"
)

// Open opens a checkpoint written by torch.save and returns its tensors as a
// safetensors File. It executes nothing in the checkpoint and reads no tensor
// data. A tensor that is stored contiguously and uncompressed, as torch.save
// writes it, is mapped in place; tensors with a common storage share its bytes.
// Other tensors (transposed, compressed, big-endian, conjugated) are gathered
// when they are read.
//
// A tensor's name consists of the keys and list indices on the path to it, joined
// by dots: "state.0.exp_avg". A tensor that was saved alone is named [BareName].
// A storage that was saved directly is a one-dimensional tensor. Other values are
// omitted, see [Scalars]. The metadata are {"format": "pt"}, which the
// transformers library expects in a safetensors file.
//
// Open fails with a [*FormatError] for an invalid file and with an *fs.PathError
// for a file that cannot be opened.
func Open(path string) (*safetensors.File, error) {
	in, err := openInput(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return open(in)
}

func open(in *inputFile) (*safetensors.File, error) {
	c, err := read(in, in.size)
	if err != nil {
		return nil, withPath(err, in.path)
	}
	return c.open(in)
}

// inputFile is an open file before it is mapped.
type inputFile struct {
	*os.File
	path string
	size int64
	info os.FileInfo
}

// openInput opens a regular file. It rejects anything else before opening it,
// because opening may block.
func openInput(path string) (*inputFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("torchfile: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, &FormatError{Path: path, Rule: safetensors.ErrNotRegular, Found: info.Mode().String()}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("torchfile: %w", err)
	}
	info, err = f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("torchfile: %w", err)
	}
	return &inputFile{f, path, info.Size(), info}, nil
}

// unchanged checks that path still refers to the file that was read.
func (in *inputFile) unchanged() error {
	now, err := os.Stat(in.path)
	if err != nil {
		return fmt.Errorf("torchfile: %w", err)
	}
	if !os.SameFile(now, in.info) || now.Size() != in.size || !now.ModTime().Equal(in.info.ModTime()) {
		return &FormatError{Path: in.path, Rule: ErrChanged}
	}
	return nil
}

// open maps the tensors.
func (c *checkpoint) open(in *inputFile) (*safetensors.File, error) {
	tensors, err := c.layout()
	if err != nil {
		return nil, withPath(err, in.path)
	}
	readers, err := newReaders(tensors, func() (lender, error) { return wholeFile(in) })
	if err != nil {
		return nil, err
	}
	list := make([]safetensors.ExternalTensor, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		list[i] = safetensors.ExternalTensor{Name: t.name, DType: t.dtype, Shape: t.shape, Offset: t.offset, Reader: readers[i]}
	}
	f, err := safetensors.OpenExternal(in.path, list, map[string]string{"format": "pt"})
	if err != nil {
		return nil, err
	}
	if err := in.unchanged(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// whole is a file as one tensor, from which readers of other tensors read.
type whole struct {
	*safetensors.View
	*safetensors.File
}

func wholeFile(in *inputFile) (lender, error) {
	const name = "file"
	f, err := safetensors.OpenExternal(in.path, []safetensors.ExternalTensor{{Name: name, DType: safetensors.U8, Shape: []int{int(in.size)}}}, nil)
	if err != nil {
		return nil, err
	}
	v, err := f.Lookup(name)
	return whole{v, f}, err
}

// newReaders returns readers for the tensors that are not in place, and nil for
// the others. The readers share the bytes of the file and inflated storages.
func newReaders(tensors []placed, open func() (lender, error)) ([]io.ReaderAt, error) {
	readers := make([]io.ReaderAt, len(tensors))
	var from lender
	records := map[int64]*inflated{} // by offset
	shared := &cache{}
	for i := range tensors {
		t := &tensors[i]
		if t.inPlace {
			continue
		}
		if from == nil {
			var err error
			if from, err = open(); err != nil {
				return nil, err
			}
		}
		if !t.extent.deflated {
			readers[i] = &gather{t.view, storedBytes{from, t.extent.at}}
			continue
		}
		z := records[t.extent.at]
		if z == nil {
			z = &inflated{file: from, extent: t.extent, cache: shared}
			records[t.extent.at] = z
		}
		if t.view.plain() {
			readers[i] = section{io.NewSectionReader(z, t.view.offset, t.view.size), z}
		} else {
			readers[i] = &gather{t.view, z}
		}
	}
	return readers, nil
}
