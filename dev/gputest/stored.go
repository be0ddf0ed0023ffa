package gputest

import "github.com/lorafuse/lorafuse/internal/ir"

// Stored lists the operations that read or write values stored as bf16.
var Stored = []ir.Op{
	ir.Unary, ir.Binary, ir.Reshape, ir.Transpose, ir.Broadcast, ir.Slice, ir.Concat, ir.GatherRows, ir.UpdateRows,
	ir.RMSNorm, ir.RMSNormGrad, ir.LayerNorm, ir.LayerNormGrad, ir.GroupNorm, ir.Softmax, ir.Conv2D, ir.Activate, ir.ActivateGrad, ir.RoPE, ir.GLU, ir.GLUGrad, ir.Dropout,
	ir.ScatterRows, ir.Attention, ir.AttentionGrad,
	ir.Gemm, ir.RowsGemm, ir.RowsGemmGrad, ir.LoRADown, ir.LoRADownGrad, ir.LoRADownInputGrad,
	ir.LinearCrossEntropy, ir.LinearCrossEntropyGrad,
}
