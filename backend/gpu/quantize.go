package gpu

import "github.com/lorafuse/lorafuse/tensor"

// quantizers maps source and destination types to kernels of quantize.cu.
var quantizers = map[[2]tensor.DType]string{
	{tensor.F32, tensor.Q8}: "quantize_q8_f32", {tensor.F16, tensor.Q8}: "quantize_q8_f16", {tensor.BF16, tensor.Q8}: "quantize_q8_bf16",
	{tensor.F32, tensor.NF4}: "quantize_nf4_f32", {tensor.F16, tensor.NF4}: "quantize_nf4_f16", {tensor.BF16, tensor.NF4}: "quantize_nf4_bf16",
}

// Quantizes lists the block types that kernels can produce from f32, f16 and bf16.
var Quantizes = []tensor.DType{tensor.Q8, tensor.NF4}

// quantizeThreads is the number of threads of the blocks of quantize.cu, a warp
// for 64 elements.
const quantizeThreads = 256

// NewQuantizer returns the kernel that quantizes weights of type from into blocks of type to, or nil if none exists.
func NewQuantizer(from, to tensor.DType) *Kernel {
	name, ok := quantizers[[2]tensor.DType{from, to}]
	if !ok {
		return nil
	}
	return &Kernel{File: "quantize", Name: name, block: [3]uint32{quantizeThreads, 1, 1}}
}

// Quantize fills in l to quantize elements of x, a multiple of the block size, into the blocks at out. A value that no
// block can represent is reported with the number of the piece.
func (k *Kernel) Quantize(l *Launch, out, x Pointer, elements int, trap Pointer, piece int) {
	const perBlock = quantizeThreads / 32 * tensor.QuantBlock
	k.Launch, l.Block = l, k.block
	k.grid(blocks(elements, perBlock), 1, 1).pointer("out", out).pointer("x", x).pointer("trap", trap).long("n", elements).int("launch", piece)
}
