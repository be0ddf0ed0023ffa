package cli

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// golden is a file with token ids and the logits that belong to them.
type golden struct {
	path          string
	ids           [][]int32
	length, vocab int

	file *safetensors.File
	view *safetensors.View // of the logits
}

// openGolden reads the ids and checks that the logits belong to them.
func openGolden(path string) (_ *golden, err error) {
	g := &golden{path: path}
	if g.file, err = safetensors.Open(path); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	ids, err := g.lookup("input_ids")
	if err != nil {
		return nil, err
	}
	if g.view, err = g.lookup("logits"); err != nil {
		return nil, err
	}
	fail := func(v *safetensors.View, expected string) error {
		return fmt.Errorf("compare: %s: %s is %v %v, expected %s", path, v.Name, v.DType, v.Shape, expected)
	}
	if len(ids.Shape) != 2 || ids.Shape[0] < 1 || ids.Shape[1] < 1 || ids.DType != safetensors.I64 && ids.DType != safetensors.I32 {
		return nil, fail(ids, "[rows, length] of I64 or I32")
	}
	rows, length := ids.Shape[0], ids.Shape[1]
	l := g.view.Shape
	d, dErr := tensor.ParseDType(g.view.DType.String())
	if len(l) != 3 || l[0] != rows || l[1] != length || l[2] < 1 || dErr != nil || !d.IsFloat() {
		return nil, fail(g.view, fmt.Sprintf("floats [%d, %d, vocabulary] as input_ids has it", rows, length))
	}
	g.length, g.vocab = length, l[2]
	all, err := g.tokenIDs(ids)
	if err != nil {
		return nil, err
	}
	for r := range rows {
		g.ids = append(g.ids, all[r*length:(r+1)*length])
	}
	return g, nil
}

func (g *golden) lookup(name string) (*safetensors.View, error) {
	v, err := g.file.Lookup(name)
	if errors.Is(err, safetensors.ErrNotFound) {
		return nil, fmt.Errorf("compare: %s has no %s; it holds %s; expected input_ids and logits", g.path, name, someNames(g.file.Names()))
	}
	return v, err
}

// someNames lists the first few names.
func someNames(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	if len(names) > 6 {
		return strings.Join(names[:6], ", ") + fmt.Sprintf(" and %d more", len(names)-6)
	}
	return strings.Join(names, ", ")
}

// tokenIDs reads whole numbers as token ids.
func (g *golden) tokenIDs(v *safetensors.View) ([]int32, error) {
	var ids []int32
	err := v.WithBytes(func(data []byte) error {
		for i := 0; i < len(data); i += v.DType.Bits() / 8 {
			id := integer(data[i:i+v.DType.Bits()/8], v.DType)
			if id < 0 || id > math.MaxInt32 {
				return fmt.Errorf("compare: %s: input_ids: %d is no token id", g.path, id)
			}
			ids = append(ids, int32(id))
		}
		return nil
	})
	return ids, err
}

// integer decodes one little-endian number of type I32 or I64.
func integer(b []byte, d safetensors.DType) int64 {
	var u uint64
	for i, x := range b {
		u |= uint64(x) << (8 * i)
	}
	if d == safetensors.I32 {
		return int64(int32(uint32(u)))
	}
	return int64(u)
}

// logits reads the logits of one row, [length, vocabulary].
func (g *golden) logits(row int) ([]float32, error) {
	v, err := g.view.Rows(row, row+1)
	if err != nil {
		return nil, err
	}
	d, err := tensor.ParseDType(v.DType.String())
	if err != nil {
		return nil, err
	}
	out := make([]float32, g.length*g.vocab)
	return out, v.WithBytes(func(data []byte) error { return tensor.ToFloat32(out, data, d) })
}

func (g *golden) close() { g.file.Close() }
