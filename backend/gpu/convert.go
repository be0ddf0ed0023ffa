package gpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// ConvertBytes is the size of the memory that holds weights before the device converts them. It grows if a row is
// longer.
const ConvertBytes = 64 << 20

// Piece is whole rows, and whole blocks, of a weight that the device converts.
type Piece struct {
	Weight   int // number of the weight
	View     *safetensors.View
	From, To tensor.DType
	First    int // element of the weight
	Elements int
}

// Offset returns where the piece's blocks begin in the weight, in bytes.
func (p *Piece) Offset() int { return p.To.Bytes(p.First) }

// Pieces cuts a weight into rows that fit a quarter of the given number of bytes and end with a block.
func Pieces(number int, w backend.Weight, bytes int) (pieces []Piece, err error) {
	v := w.View
	from, err := tensor.ParseDType(v.DType.String())
	if err != nil {
		return nil, err
	}
	whole := Piece{Weight: number, View: v, From: from, To: w.DType, Elements: v.Len() / from.Size()}
	if len(v.Shape) == 0 || whole.Elements == 0 {
		return []Piece{whole}, nil
	}
	rows, cols := v.Shape[0], whole.Elements/v.Shape[0]
	together := tensor.QuantBlock / gcd(cols, tensor.QuantBlock) // rows that end with a block
	step := max(1, bytes/4/(together*cols*from.Size())) * together
	for r := 0; r < rows; r += step {
		p := whole
		if p.View, err = v.Rows(r, min(r+step, rows)); err != nil {
			return nil, err
		}
		p.First, p.Elements = r*cols, p.View.Len()/from.Size()
		pieces = append(pieces, p)
	}
	return pieces, nil
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Refused returns the error for an element of the piece that no block can hold, which the device has found.
func (p *Piece) Refused() error {
	err := p.View.WithBytes(func(data []byte) error {
		values := make([]float32, 1<<14)
		blocks := make([]byte, p.To.Bytes(len(values)))
		for rest, first := data, p.First; len(rest) > 0; first += len(values) {
			n := min(len(values), len(rest)/p.From.Size())
			if err := tensor.ToFloat32(values[:n], rest[:n*p.From.Size()], p.From); err != nil {
				return err
			}
			if err := quant.Quantize(blocks[:p.To.Bytes(n)], values[:n], p.To); err != nil {
				return fmt.Errorf("from element %d on: %w", first, err)
			}
			rest = rest[n*p.From.Size():]
		}
		return quant.ErrNotFinite // it was so on the device
	})
	return fmt.Errorf("tensor %q: %w", p.View.Name, err)
}
