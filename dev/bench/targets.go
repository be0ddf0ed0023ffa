package bench

// Targets for a GPU, an H200, by the name of their marks. Package dev/gpucheck combines them in one report.
const (
	TargetProduct = "product of 4096³ in bf16: share of the measured peak of mma.sync"
	TargetLayer   = "LoRA r=16 on m=8192, 4096², bf16, forward and backward: beside the frozen layer"
	TargetUpload  = "upload: beside the pinned copy"
	TargetStep    = "training step, bf16: share of the ceiling of 4 operations a weight and token at the measured rate of mma.sync, which is not the chip's"
	TargetPEFT    = "training step, bf16: beside torch + PEFT on the same GPU, the fastest"
	TargetDecode  = "decoding: share of the measured bandwidth"
)

// How much is asked: parts of the peaks, times of the frozen layer, and times of
// the pinned copy.
const (
	LeastProduct = 0.85
	MostLayer    = 1.08
	MostUpload   = 1 / 0.85
	LeastStep    = 0.7
	MostPEFT     = 1
	LeastDecode  = 0.8
)

// Targets lists their names.
func Targets() []string {
	return []string{TargetProduct, TargetLayer, TargetUpload, TargetStep, TargetPEFT, TargetDecode}
}
