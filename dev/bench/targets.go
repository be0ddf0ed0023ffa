package bench

// Targets for an H100 or H200, by the names of their marks. Package dev/gpucheck combines them in one report and compares
// the rows of different suites.
const (
	TargetProduct  = "product of 4096³ in bf16: share of the measured peak of mma.sync"
	TargetGemm     = "product with 8,192 rows in bf16: speed relative to torch.matmul"
	TargetForward  = "attention, heads of 128, forward: speed relative to torch's SDPA"
	TargetBackward = "attention, heads of 128, backward without forward: speed relative to torch's SDPA"
	TargetLayer    = "LoRA r=16 on m=8192, 4096², bf16, forward and backward: beside the frozen layer"
	TargetUpload   = "upload: beside the pinned copy"
	TargetStep     = "training step, bf16: share of the ceiling of 4 operations a weight and token at the measured rate of mma.sync, which is not the chip's"
	TargetSpeed    = "training step of 8B, bf16, 4 × 2,048 tokens: tokens per second"
	TargetPEFT     = "training step, bf16: beside torch + PEFT on the same GPU, the fastest"
	TargetDecode   = "decoding: share of the measured bandwidth"
	TargetAdapter  = "decoding with an adapter: beside decoding without one"
	TargetOne      = "serving one sequence: share of the measured bandwidth"
	TargetServed   = "serving 64 sequences with 16 adapters: share of the measured bandwidth"
)

// How much is asked: parts of the peaks, speeds relative to torch's, times of the frozen layer, of the pinned copy and of
// decoding without an adapter, and tokens per second.
const (
	LeastProduct  = 0.85
	LeastGemm     = 0.6
	LeastForward  = 0.5
	LeastBackward = 0.4
	MostLayer     = 1.08
	MostUpload    = 1 / 0.85
	LeastStep     = 0.7
	LeastSpeed    = 10_000
	MostPEFT      = 1
	LeastDecode   = 0.85
	MostAdapter   = 1.05
	LeastOne      = 0.8
	LeastServed   = 0.7
)

// Target is a requirement: a ratio of at least Limit if Least is set, else of at most Limit.
type Target struct {
	Name  string
	Limit float64
	Least bool
}

// Targets lists all targets.
func Targets() []Target {
	return []Target{
		{TargetProduct, LeastProduct, true}, {TargetGemm, LeastGemm, true}, {TargetForward, LeastForward, true}, {TargetBackward, LeastBackward, true},
		{TargetLayer, MostLayer, false}, {TargetUpload, MostUpload, false}, {TargetStep, LeastStep, true}, {TargetSpeed, LeastSpeed, true}, {TargetPEFT, MostPEFT, false},
		{TargetDecode, LeastDecode, true}, {TargetAdapter, MostAdapter, false}, {TargetOne, LeastOne, true}, {TargetServed, LeastServed, true},
	}
}
