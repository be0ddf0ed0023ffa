package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// GGUFIndex is the name of the file in a folder that says which tensors of a GGUF file
// are the weights of a model.
const GGUFIndex = "model.gguf.index.json"

// GGUF is the content of a GGUFIndex.
type GGUF struct {
	File    string       `json:"file"` // absolute
	Tensors []GGUFTensor `json:"tensors"`
}

// GGUFTensor describes a weight that is computed from a tensor of a GGUF file.
type GGUFTensor struct {
	Name string `json:"name"`
	From string `json:"from"`
	// Pairs is the number of heads whose rows are neighbours where the weight has two
	// halves; 0 for none.
	Pairs int `json:"pairs,omitempty"`
	// Origin is subtracted from all elements.
	Origin float32 `json:"origin,omitempty"`
	// Expert is the matrix in a stack of Experts; both are 0 for other tensors.
	Expert  int `json:"expert,omitempty"`
	Experts int `json:"experts,omitempty"`
}

// openGGUF opens the tensors of a GGUF file that an index lists. Floats that
// need no conversion are used in place; other tensors are converted when they are read.
func openGGUF(path string) (*Set, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	var index GGUF
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fmt.Errorf("weights: %s: %w", path, err)
	}
	f, err := gguf.Open(index.File)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	source := &ggufFile{File: f}
	var tensors, blocks []safetensors.ExternalTensor
	types := map[string]Blocks{}
	for _, t := range index.Tensors {
		x, err := source.tensor(t)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("weights: %s: tensor %q: %w", index.File, t.From, err), f.Close())
		}
		tensors = append(tensors, x)
		if b, d, ok := source.blocks(t); ok {
			types[t.Name], blocks = Blocks{DType: d, Shape: x.Shape}, append(blocks, b)
		}
	}
	s, err := Place(index.File, tensors, nil, "")
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.blockTypes = types
	if s.blocks, err = safetensors.OpenExternal(index.File, blocks, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("weights: %w", err), s.Close())
	}
	s.sources[0].Format = "GGUF"
	s.Stem, s.Folder, s.converts = stem(index.File), filepath.Dir(path), true
	return s, nil
}

// ggufFile is a file that several readers share.
type ggufFile struct {
	*gguf.File
	once sync.Once
	err  error
}

// Close closes the file once.
func (f *ggufFile) Close() error {
	f.once.Do(func() { f.err = f.File.Close() })
	return f.err
}

var ggufFloats = map[gguf.Type]safetensors.DType{gguf.F32: safetensors.F32, gguf.F16: safetensors.F16, gguf.BF16: safetensors.BF16}

// tensor returns one tensor of the set.
func (f *ggufFile) tensor(t GGUFTensor) (x safetensors.ExternalTensor, err error) {
	from, err := f.Tensor(t.From)
	if err != nil {
		return x, err
	}
	shape, first := from.Shape, 0
	if t.Experts > 0 {
		if len(shape) != 3 || shape[0] != t.Experts || t.Expert < 0 || t.Expert >= t.Experts {
			return x, fmt.Errorf("%w: shape %v, expected %d matrices", gguf.ErrFormat, shape, t.Experts)
		}
		shape = shape[1:]
		first = t.Expert * shape[0] * shape[1]
	}
	if len(shape) != 1 && len(shape) != 2 {
		return x, fmt.Errorf("%w: shape %v, expected a vector or a matrix", gguf.ErrFormat, shape)
	}
	if t.Pairs > 0 && shape[0]%(2*t.Pairs) != 0 {
		return x, fmt.Errorf("%w: %d rows are not of %d heads", gguf.ErrFormat, shape[0], t.Pairs)
	}
	x = safetensors.ExternalTensor{Name: t.Name, DType: safetensors.F32, Shape: slices.Clone(shape)}
	if d, float := ggufFloats[from.Type]; float && t.Pairs == 0 && t.Origin == 0 {
		x.DType, x.Offset = d, from.Offset+int64(from.Type.Bytes(first))
		return x, nil
	}
	width := shape[len(shape)-1]
	if len(shape) == 1 {
		width = 1
		if n, _ := from.Type.BlockSize(); n > 1 {
			return x, fmt.Errorf("%w: a vector of type %v", gguf.ErrFormat, from.Type)
		}
	}
	x.Reader = &ggufReader{file: f, tensor: from, first: first, width: width, rows: shape[0], GGUFTensor: t}
	return x, nil
}

// blocks returns the rows of a matrix in blocks as bytes, and their type. ok is false for other
// tensors.
func (f *ggufFile) blocks(t GGUFTensor) (x safetensors.ExternalTensor, d tensor.DType, ok bool) {
	from, err := f.Tensor(t.From)
	if err != nil || t.Origin != 0 || !from.Type.DType().Quantized() || t.Experts > 0 && t.Pairs > 0 {
		return x, d, false
	}
	shape := from.Shape
	if t.Experts > 0 {
		shape = shape[1:]
	}
	if len(shape) != 2 {
		return x, d, false
	}
	rows, width := shape[0], from.Type.Bytes(shape[1])
	x = safetensors.ExternalTensor{Name: t.Name, DType: safetensors.U8, Shape: []int{rows, width}}
	if t.Pairs == 0 {
		x.Offset = from.Offset + int64(t.Expert*rows*width)
	} else {
		x.Reader = &blockReader{ggufReader{file: f, tensor: from, width: width, rows: rows, GGUFTensor: t}}
	}
	return x, from.Type.DType(), true
}

// blockReader reads the blocks of a matrix whose rows are in another order in the file.
type blockReader struct{ ggufReader }

// ReadAt implements io.ReaderAt, row by row.
func (r *blockReader) ReadAt(p []byte, off int64) (n int, err error) {
	err = r.file.WithBytes(r.tensor, func(data []byte) error {
		for n < len(p) {
			row, at := int((off+int64(n))/int64(r.width)), int((off+int64(n))%int64(r.width))
			if row >= r.rows {
				return io.EOF
			}
			n += copy(p[n:], data[r.row(row)*r.width:][at:r.width])
		}
		return nil
	})
	return n, err
}

// ggufReader reads the elements of a tensor as float32.
type ggufReader struct {
	file   *ggufFile
	tensor *gguf.Tensor
	first  int // element of the tensor
	width  int // of a row
	rows   int
	GGUFTensor
}

// Close implements io.Closer.
func (r *ggufReader) Close() error { return r.file.Close() }

// row returns the row of the file that holds a row of the weight.
func (r *ggufReader) row(row int) int {
	if r.Pairs == 0 {
		return row
	}
	size := r.rows / r.Pairs
	head, j := row/size, row%size
	if j < size/2 {
		return head*size + 2*j
	}
	return head*size + 2*(j-size/2) + 1
}

// ReadAt implements io.ReaderAt, row by row.
func (r *ggufReader) ReadAt(p []byte, off int64) (n int, err error) {
	values := make([]float32, r.width)
	bytes := int64(4 * r.width)
	for n < len(p) {
		row := int((off + int64(n)) / bytes)
		if row >= r.rows {
			return n, io.EOF
		}
		if err := r.file.Float32s(values, r.tensor, r.first+r.row(row)*r.width); err != nil {
			return n, err
		}
		at := int((off + int64(n)) % bytes)
		for at < int(bytes) && n < len(p) {
			bits := math.Float32bits(values[at/4] - r.Origin)
			for k := at % 4; k < 4 && n < len(p); k++ {
				p[n] = byte(bits >> (8 * k))
				n++
				at++
			}
		}
	}
	return n, nil
}
