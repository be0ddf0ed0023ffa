package lora

import (
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/weights"
)

// ConfigFile and WeightsFile are the two files of an adapter folder. Old versions of
// PEFT write TorchWeightsFile instead of WeightsFile.
const (
	ConfigFile       = "adapter_config.json"
	WeightsFile      = weights.AdapterFile
	TorchWeightsFile = weights.TorchAdapterFile
)

// peftVersion is the PEFT version with which this package is compatible; a new
// adapter_config.json names it.
const peftVersion = "0.21.2"

// AllLinear, in any letter case, is the target pattern that selects every linear layer
// except the output head.
const AllLinear = "all-linear"

// Config is PEFT's LoraConfig: the contents of adapter_config.json. Each field is named
// after its key, in Go's spelling. [DefaultConfig] returns PEFT's defaults; the zero
// value does not have them.
//
// The opaque fields configure methods that this package does not compute. They are
// preserved verbatim, and [Config.Validate] reports the ones that it cannot ignore.
type Config struct {
	PeftType            string  // the method: "LORA"
	PeftVersion         string  // of the writer
	TaskType            *string // CAUSAL_LM, SEQ_CLS, …; nil if the base model class is in AutoMapping
	AutoMapping         Opaque
	BaseModelNameOrPath *string
	Revision            *string // of the base model
	InferenceMode       bool    // true on disk, without meaning for the adapter

	R            int          // rank of every target that RankPattern leaves alone
	LoraAlpha    float64      // scale = alpha/r, or alpha/√r with UseRSLoRA
	RankPattern  RankPattern  // ranks of single modules, first match in order
	AlphaPattern AlphaPattern // alphas of single modules, first match in order
	LoraDropout  float64      // on the input of A, in training
	UseRSLoRA    bool
	UseDoRA      bool
	LoraBias     bool   // B has a bias
	Bias         string // the biases of the base model to train: none, all or lora_only
	FanInFanOut  bool   // weights have shape [in, out] (Conv1D of GPT-2); corrected by the kind of the module
	// InitLoraWeights is the initialization of A and B; the zero value is InitDefault.
	InitLoraWeights InitMethod

	TargetModules         ModuleSet // unset: PEFT's choice for the model type
	TargetParameters      []string  // parameters without a layer, such as stacked experts, by full names or their endings
	ExcludeModules        ModuleSet // wins over TargetModules
	LayersToTransform     []int     // layer numbers that a list of names is limited to; nil is all
	LayersPattern         []string  // the names of the module lists that hold the layers
	ModulesToSave         []string  // trained and saved whole
	TrainableTokenIndices []TokenRows
	EnsureWeightTying     bool

	AloraInvocationTokens Opaque
	ArrowConfig           Opaque
	CordaConfig           Opaque
	EvaConfig             Opaque
	KasaConfig            Opaque
	LayerReplication      Opaque
	LoftqConfig           Opaque
	LoraGAConfig          Opaque
	MegatronConfig        Opaque
	MegatronCore          *string
	MontecloraConfig      Opaque
	QaloraGroupSize       int
	UseBDLoRA             Opaque
	UseQALoRA             bool
	VeloraConfig          Opaque

	// Warnings names the keys of the file that neither PEFT nor this package knows.
	Warnings []string

	own  settings // of a method with keys of its own, else nil
	read object   // original JSON, to keep the spelling of unchanged values
}

// DefaultConfig returns the configuration that PEFT's LoraConfig() has.
func DefaultConfig() *Config {
	return &Config{
		PeftType:        "LORA",
		PeftVersion:     peftVersion,
		R:               8,
		LoraAlpha:       8,
		Bias:            "none",
		InferenceMode:   true,
		InitLoraWeights: InitDefault,
		LoftqConfig:     Opaque{object{}},
		MegatronCore:    new("megatron.core"),
		QaloraGroupSize: 16,
	}
}

// newConfig returns the default configuration of the methods of a peft_type, which is a JSON value.
// An unknown peft_type gives LoRA's defaults.
func newConfig(peftType any) *Config {
	c := DefaultConfig()
	for _, m := range methods {
		if m.peftType() == peftType {
			c.PeftType, c.own = m.peftType(), m.settings()
		}
	}
	return c
}

// Clone returns a deep copy; the two share only immutable values.
func (c *Config) Clone() *Config {
	d := *c
	for _, p := range []**string{&d.TaskType, &d.BaseModelNameOrPath, &d.Revision, &d.MegatronCore} {
		if *p != nil {
			*p = new(**p)
		}
	}
	d.RankPattern = slices.Clone(c.RankPattern)
	d.AlphaPattern = slices.Clone(c.AlphaPattern)
	d.TargetModules.Names = slices.Clone(c.TargetModules.Names)
	d.ExcludeModules.Names = slices.Clone(c.ExcludeModules.Names)
	d.LayersToTransform = slices.Clone(c.LayersToTransform)
	d.LayersPattern = slices.Clone(c.LayersPattern)
	d.ModulesToSave = slices.Clone(c.ModulesToSave)
	d.TargetParameters = slices.Clone(c.TargetParameters)
	d.TrainableTokenIndices = slices.Clone(c.TrainableTokenIndices)
	for i, t := range d.TrainableTokenIndices {
		d.TrainableTokenIndices[i].Tokens = slices.Clone(t.Tokens)
	}
	d.Warnings = slices.Clone(c.Warnings)
	if c.own != nil {
		d.own = c.own.clone()
	}
	return &d
}

// ModuleSet selects modules by a list or by one regular expression (of Python). An
// entry of the list is the full name of a module or its end after a dot; the expression
// must match the full name. The zero value is unset; an empty list that is not nil
// selects nothing.
type ModuleSet struct {
	Names   []string
	Pattern string
}

// IsSet reports whether s is set, if only to an empty list.
func (s ModuleSet) IsSet() bool { return s.Names != nil || s.Pattern != "" }

// isAllLinear reports whether s is the shorthand for all linear layers.
func (s ModuleSet) isAllLinear() bool { return strings.EqualFold(s.Pattern, AllLinear) }

// String formats the set for error messages.
func (s ModuleSet) String() string {
	if s.Pattern != "" {
		return quoted(s.Pattern)
	}
	return list(s.Names)
}

// RankPattern overrides the rank of modules. A key is a regular expression (of Python)
// that must match the end of the module's name, from its start or after a dot; the
// first key that matches counts.
type RankPattern []RankRule

// RankRule is one entry of a RankPattern.
type RankRule struct {
	Key string
	R   int
}

// AlphaPattern overrides the alpha of modules, see [RankPattern].
type AlphaPattern []AlphaRule

// AlphaRule is one entry of an AlphaPattern.
type AlphaRule struct {
	Key   string
	Alpha float64
}

// TokenRows are the rows of one embedding that are trained while the others
// stay frozen.
type TokenRows struct {
	Module string // the embedding; empty for the input embedding of the model
	Tokens []int  // row numbers, in the order of the saved rows
}

// InitMethod is a value of init_lora_weights.
type InitMethod string

// The supported initialization methods. InitPiSSA may also be followed by "_niter_N": a
// randomized SVD of N iterations.
const (
	InitDefault  InitMethod = "true"     // JSON true: A uniform in ±1/√in, B zero
	InitRandom   InitMethod = "false"    // JSON false: both uniform; for debugging
	InitGaussian InitMethod = "gaussian" // A normal with deviation 1/r, B zero
	InitPiSSA    InitMethod = "pissa"    // the r largest singular values, taken out of the base
	InitOLoRA    InitMethod = "olora"    // the first r columns of QR, taken out of the base
)

// Opaque is a JSON value that is kept and not interpreted. The zero value is
// null.
type Opaque struct{ value any }

// IsSet reports whether the value is true for Python: anything except null, false and
// the empty list or object.
func (o Opaque) IsSet() bool {
	switch v := o.value.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case array:
		return len(v) > 0
	case object:
		return len(v) > 0
	}
	return true
}
