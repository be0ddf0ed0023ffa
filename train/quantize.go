package train

import (
	"fmt"

	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// DescribeQuantization says in lines for people which weights of a model are
// quantised, and how; none where none is.
func DescribeQuantization(m *model.Model) (lines []string) {
	q := m.Quantization()
	switch stored := StoredQuantization(m); {
	case stored != "":
		lines = append(lines, "quantize "+stored)
	case len(q.Weights) > 0:
		lines = append(lines, fmt.Sprintf("quantize %s: %d linear layers in %s, %s in 16 bits; embeddings, norms and the head as in the file",
			quant.Name(q.DType), len(q.Weights), Size(q.Bytes), Size(q.Plain)))
	}
	if len(q.Widened) > 0 {
		lines = append(lines, fmt.Sprintf("note     %d of the quantised weights are used as float32, since their rows are not whole blocks of %d: %s",
			len(q.Widened), tensor.QuantBlock, q.Widened[0]+more(len(q.Widened)-1)))
	}
	return lines
}

// StoredQuantization says how the weights of a model are stored by
// bitsandbytes, and is empty where they are not.
func StoredQuantization(m *model.Model) string {
	q := m.Quantization()
	if !q.Stored {
		return ""
	}
	if len(q.Weights) == 0 {
		return fmt.Sprintf("by bitsandbytes: %d linear layers as int8", len(q.Widened))
	}
	return fmt.Sprintf("by bitsandbytes: %d linear layers as %s in %s, %s in 16 bits", len(q.Weights), quant.Name(q.DType), Size(q.Bytes), Size(q.Plain))
}

func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}
