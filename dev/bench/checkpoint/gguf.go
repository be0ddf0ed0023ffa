package checkpoint

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
)

// Format is a storage format of matrices in llama.cpp.
type Format uint32

// The formats, by their numbers in GGUF.
const (
	f32    Format = 0
	Q8     Format = 8 // q8_0: blocks of 32 with one scale
	BF16   Format = 30
	block         = 32
	q8Size        = 2 + block // bytes of a block
)

// String returns llama.cpp's name of the format.
func (f Format) String() string {
	switch f {
	case Q8:
		return "q8_0"
	case BF16:
		return "bf16"
	}
	return fmt.Sprintf("Format(%d)", uint32(f))
}

func (f Format) bytes(elements int) int {
	switch f {
	case Q8:
		return elements / block * q8Size
	case BF16:
		return 2 * elements
	}
	return 4 * elements
}

// WriteGGUF writes a model of the same shape, with random weights and made-up
// tokens, as llama.cpp reads it (GGUF version 3).
func (s Shape) WriteGGUF(path string, format Format) (err error) {
	if s.Hidden%block != 0 || s.Inter%block != 0 || s.Vocab < firstName {
		return fmt.Errorf("checkpoint: %v cannot be a GGUF of %v: rows of blocks of %d, and %d tokens or more", s, format, block, firstName)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	w := &ggufWriter{w: bufio.NewWriterSize(f, 1<<20)}
	s.gguf(w, format)
	if w.err == nil {
		w.err = w.w.Flush()
	}
	if closed := f.Close(); w.err == nil {
		w.err = closed
	}
	if w.err != nil {
		return fmt.Errorf("checkpoint: %s: %w", path, w.err)
	}
	return nil
}

// ggufTensor is a tensor of a file. Unlike in the file, dims are outermost first.
type ggufTensor struct {
	name   string
	dims   []int
	format Format
}

func (t ggufTensor) elements() int {
	n := 1
	for _, d := range t.dims {
		n *= d
	}
	return n
}

func (s Shape) ggufTensors(format Format) []ggufTensor {
	all := []ggufTensor{
		{"token_embd.weight", []int{s.Vocab, s.Hidden}, format}, {"output_norm.weight", []int{s.Hidden}, f32}, {"output.weight", []int{s.Vocab, s.Hidden}, format},
	}
	names := []string{"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}
	for i := range s.Layers {
		layer := fmt.Sprintf("blk.%d.", i)
		for j, l := range s.linears() {
			all = append(all, ggufTensor{layer + names[j] + ".weight", []int{l.out, l.in}, format})
		}
		all = append(all, ggufTensor{layer + "attn_norm.weight", []int{s.Hidden}, f32}, ggufTensor{layer + "ffn_norm.weight", []int{s.Hidden}, f32})
	}
	return all
}

// Tokens of a made-up vocabulary: three with a meaning, one for each byte, names.
const firstName = 3 + 256

// Types of values in GGUF.
const (
	kindU32    = 4
	kindI32    = 5
	kindF32    = 6
	kindString = 8
	kindArray  = 9
)

func (s Shape) gguf(w *ggufWriter, format Format) {
	tensors := s.ggufTensors(format)
	numbers := []struct {
		key   string
		value int
	}{
		{"llama.context_length", s.Positions}, {"llama.embedding_length", s.Hidden}, {"llama.block_count", s.Layers},
		{"llama.feed_forward_length", s.Inter}, {"llama.attention.head_count", s.Heads}, {"llama.attention.head_count_kv", s.KVHeads},
		{"llama.rope.dimension_count", s.HeadDim()}, {"llama.vocab_size", s.Vocab},
		{"tokenizer.ggml.unknown_token_id", 0}, {"tokenizer.ggml.bos_token_id", 1}, {"tokenizer.ggml.eos_token_id", 2},
	}
	w.bytes([]byte("GGUF"))
	w.u32(3)
	w.u64(len(tensors))
	w.u64(len(numbers) + 7)
	w.text("general.architecture", "llama")
	w.text("tokenizer.ggml.model", "llama")
	for _, n := range numbers {
		w.key(n.key, kindU32)
		w.u32(uint32(n.value))
	}
	w.key("llama.attention.layer_norm_rms_epsilon", kindF32)
	w.u32(math.Float32bits(1e-5))
	w.key("llama.rope.freq_base", kindF32)
	w.u32(math.Float32bits(10000))
	s.ggufTokens(w)
	at := 0
	for _, t := range tensors {
		w.string(t.name)
		w.u32(uint32(len(t.dims)))
		for i := range t.dims {
			w.u64(t.dims[len(t.dims)-1-i])
		}
		w.u32(uint32(t.format))
		w.u64(at)
		at = aligned(at + t.format.bytes(t.elements()))
	}
	w.align()
	for _, t := range tensors {
		w.tensor(t)
		w.align()
	}
}

func (s Shape) ggufTokens(w *ggufWriter) {
	w.array("tokenizer.ggml.tokens", kindString, s.Vocab)
	for i := range s.Vocab {
		switch {
		case i < 3:
			w.string([]string{"<unk>", "<s>", "</s>"}[i])
		case i < firstName:
			w.string(fmt.Sprintf("<0x%02X>", i-3))
		default:
			w.string(fmt.Sprintf("t%d", i))
		}
	}
	w.array("tokenizer.ggml.scores", kindF32, s.Vocab)
	for range s.Vocab {
		w.u32(0)
	}
	const normal, unknown, control, byteToken = 1, 2, 3, 6
	w.array("tokenizer.ggml.token_type", kindI32, s.Vocab)
	for i := range s.Vocab {
		switch {
		case i == 0:
			w.u32(unknown)
		case i < 3:
			w.u32(control)
		case i < firstName:
			w.u32(byteToken)
		default:
			w.u32(normal)
		}
	}
}

// ggufWriter keeps the first error and how far it is.
type ggufWriter struct {
	w   *bufio.Writer
	at  int
	err error
}

// Write implements io.Writer for tensor data.
func (w *ggufWriter) Write(b []byte) (int, error) {
	w.bytes(b)
	return len(b), w.err
}

func (w *ggufWriter) bytes(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
		w.at += len(b)
	}
}

func (w *ggufWriter) u32(x uint32) { w.bytes(binary.LittleEndian.AppendUint32(nil, x)) }
func (w *ggufWriter) u64(x int)    { w.bytes(binary.LittleEndian.AppendUint64(nil, uint64(x))) }

func (w *ggufWriter) string(s string) {
	w.u64(len(s))
	w.bytes([]byte(s))
}

func (w *ggufWriter) key(key string, kind uint32) {
	w.string(key)
	w.u32(kind)
}

func (w *ggufWriter) text(key, value string) {
	w.key(key, kindString)
	w.string(value)
}

func (w *ggufWriter) array(key string, kind uint32, n int) {
	w.key(key, kindArray)
	w.u32(kind)
	w.u64(n)
}

// aligned returns the next offset at which a tensor may start.
func aligned(n int) int { return (n + block - 1) / block * block }

func (w *ggufWriter) align() { w.bytes(make([]byte, aligned(w.at)-w.at)) }

func (w *ggufWriter) tensor(t ggufTensor) {
	n := t.elements()
	switch t.format {
	case f32:
		for range n {
			w.u32(math.Float32bits(1))
		}
	case BF16:
		w.keep(writeNormal(w, int64(2*n), t.name))
	case Q8:
		w.keep(writeQ8(w, n))
	}
}

func (w *ggufWriter) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}

// writeQ8 writes n numbers between -0.06 and 0.06 as blocks.
func writeQ8(w io.Writer, n int) error {
	const scale = 0x0fdf // 0.00048 as f16
	row := make([]byte, 1024*q8Size)
	x := uint64(n)
	for i := range row {
		x = x*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
		row[i] = byte(x >> 56)
	}
	for i := 0; i < len(row); i += q8Size {
		row[i], row[i+1] = scale&0xff, scale>>8
	}
	for left := n / block * q8Size; left > 0; {
		k := min(left, len(row))
		if _, err := w.Write(row[:k]); err != nil {
			return err
		}
		left -= k
	}
	return nil
}
