package torchfile

import (
	"fmt"
	"io"
	"os"

	"github.com/lorafuse/lorafuse/safetensors"
)

// Open reads a checkpoint that torch.save has written and returns its tensors as
// a File of safetensors. Nothing in the checkpoint is executed, and no byte of a
// tensor is read: one that lies in the file in order and uncompressed, which is
// what torch.save writes, is mapped in place, tensors that share a storage share
// its bytes; others (transposed, compressed, of a big-endian machine, conjugated)
// are gathered when they are read.
//
// The names are the keys that lead to a tensor, joined by dots, with the indices
// of lists: "state.0.exp_avg". A tensor that was saved alone is called
// [BareName], a storage that was saved as such is a tensor of one dimension.
// Other values are left out, see [Scalars]. The metadata are {"format": "pt"},
// which the transformers library asks for in a safetensors file.
//
// What is wrong with a file is a [*FormatError]; one that cannot be opened gives
// an *fs.PathError.
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

// openInput opens a regular file. Anything else is refused before it is opened,
// because that may block.
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

// unchanged makes sure that path still leads to the file that was read.
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
	list := make([]safetensors.Placed, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		list[i] = safetensors.Placed{Name: t.name, DType: t.dtype, Shape: t.shape, Offset: t.offset, Reader: readers[i]}
	}
	f, err := safetensors.OpenPlaced(in.path, list, map[string]string{"format": "pt"})
	if err != nil {
		return nil, err
	}
	if err := in.unchanged(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// whole is a file as one tensor, for the readers of others.
type whole struct {
	*safetensors.View
	*safetensors.File
}

func wholeFile(in *inputFile) (lender, error) {
	const name = "file"
	f, err := safetensors.OpenPlaced(in.path, []safetensors.Placed{{Name: name, DType: safetensors.U8, Shape: []int{int(in.size)}}}, nil)
	if err != nil {
		return nil, err
	}
	v, err := f.Lookup(name)
	return whole{v, f}, err
}

// newReaders makes what reads the tensors that are not in place; the others have
// none. They share the bytes of the file and those of compressed storages.
func newReaders(tensors []placed, open func() (lender, error)) ([]io.ReaderAt, error) {
	readers := make([]io.ReaderAt, len(tensors))
	var from lender
	records := map[int64]*inflated{} // by place
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
