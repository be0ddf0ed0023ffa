package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/quant"
)

// Lines describes in text which weights are quantized, and how. It returns nothing if none is.
func (q Quantization) Lines() (lines []string) {
	if stored := q.Storage(); stored != "" {
		lines = append(lines, "quantize "+stored)
	}
	if !q.Stored && len(q.Weights) > 0 {
		lines = append(lines, fmt.Sprintf("quantize %s: %d linear layers in %s, %s in 16 bits; embeddings, norms and the head as in the file",
			quant.Name(q.DType), len(q.Weights), bytesize.Binary(q.Bytes), bytesize.Binary(q.Plain)))
	}
	if len(q.Widened) > 0 {
		why := "their rows are not whole blocks"
		if q.Tool != "" {
			why = "they do not divide into blocks of 32 inputs of a group"
		}
		lines = append(lines, fmt.Sprintf("note     %d of the quantised weights are used as float32, since %s: %s",
			len(q.Widened), why, q.Widened[0]+andMore(len(q.Widened)-1)))
	}
	return lines
}

// Storage describes how quantized weights are stored. It is empty if none are.
func (q Quantization) Storage() string {
	switch {
	case !q.Stored && q.Stacks > 0:
		return fmt.Sprintf("in the file: %d stacks of experts as mxfp4 in %s", q.Stacks, bytesize.Binary(q.StackBytes))
	case !q.Stored:
		return ""
	}
	if q.Float8 {
		return q.float8Storage()
	}
	if q.Tool != "" {
		return fmt.Sprintf("by %s: %d linear layers, %d of them in %s, %s in 16 bits", q.Tool, len(q.Weights)+len(q.Widened), len(q.Weights), bytesize.Binary(q.Bytes), bytesize.Binary(q.Plain))
	}
	if len(q.Weights) == 0 {
		return fmt.Sprintf("by bitsandbytes: %d linear layers as int8", len(q.Widened))
	}
	return fmt.Sprintf("by bitsandbytes: %d linear layers as %s in %s, %s in 16 bits", len(q.Weights), quant.Name(q.DType), bytesize.Binary(q.Bytes), bytesize.Binary(q.Plain))
}

// float8Storage describes weights that are stored in 8-bit floats.
func (q Quantization) float8Storage() string {
	layers := "linear layers"
	if slices.ContainsFunc(q.Weights, func(name string) bool { return !strings.HasSuffix(name, weightSuffix) }) {
		layers += " and stacks of experts"
	}
	text := fmt.Sprintf("in the file: %d %s as fp8 in %s, %s in 16 bits", len(q.Weights), layers, bytesize.Binary(q.Bytes), bytesize.Binary(q.Plain))
	if q.Activations != "" {
		text += "; activations are not rounded (" + q.Activations + " is not used)"
	}
	return text
}

// andMore returns a note on the number of names left out.
func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}
