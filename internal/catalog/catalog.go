// Package catalog says what can be done with each class of models. docs/models.md and
// `lorafuse inspect` show it.
package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/llamacpp"
	"github.com/lorafuse/lorafuse/lora"
)

// Row lists the commands, tasks and formats that support a class.
type Row struct {
	Class   string   `json:"class"`
	Reads   string   `json:"reads"`                     // the part that is read
	Trains  []string `json:"tasks,omitempty"`           // the values of the key task
	Serves  []string `json:"commands,omitempty"`        // what is computed without training
	Targets []string `json:"default_targets,omitempty"` // layers that get adapters if target_modules is not set; nil if it must be
	Stored  string   `json:"quantized_files"`           // quantised checkpoints
	GGUF    bool     `json:"to_gguf"`                   // merge --to gguf writes it
}

// Of returns the row of a supported class of transformers.
func Of(class string) Row {
	kind := model.ModelTypeOf(class)
	r := Row{Class: class, Targets: lora.DefaultTargets(kind), Stored: "bitsandbytes, fp8, gptq, awq", GGUF: slices.Contains(llamacpp.Classes(), class)}
	switch kind {
	case "gpt_oss":
		r.Stored += ", mxfp4"
	case "gpt2":
		r.Stored = "bitsandbytes, fp8" // its weights are transposed
	}
	classifies := func() {
		if model.ClassifierOf(kind) != "" {
			r.Trains = append(r.Trains, "classification")
		}
	}
	switch ends := func(head string) bool { return strings.HasSuffix(class, head) }; {
	case kind == "t5" || kind == "clip_text_model":
		r.Reads = "encoder of captions"
	case ends("ForSequenceClassification"):
		r.Reads, r.Trains, r.Serves = "classifier", []string{"classification"}, []string{"eval"}
	case ends("ForCausalLM"), ends("LMHeadModel"), ends("ForConditionalGeneration"):
		r.Reads = "language model"
		if ends("ForConditionalGeneration") {
			r.Reads = "its text part"
		}
		r.Trains, r.Serves = []string{"language", "preference", "embedding"}, []string{"generate", "serve", "embed"}
		classifies()
	default:
		r.Reads, r.Trains, r.Serves = "body", []string{"embedding"}, []string{"embed", "serve"}
		classifies()
	}
	return r
}

// cells returns the row of a table, without the class.
func (r Row) cells() []string {
	list := func(names []string, none string) string {
		if len(names) == 0 {
			return none
		}
		return strings.Join(names, ", ")
	}
	gguf := "no"
	if r.GGUF {
		gguf = "yes"
	}
	return []string{r.Reads, list(r.Trains, "–"), list(r.Serves, "–"), list(r.Targets, "to be set"), r.Stored, gguf}
}

// String returns the row as one line.
func (r Row) String() string {
	c := r.cells()
	return fmt.Sprintf("%s; tasks: %s; commands: %s; default targets: %s; quantised files: %s; to GGUF: %s", c[0], c[1], c[2], c[3], c[4], c[5])
}

// Markdown returns docs/models.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Models

Classes of transformers that open, by the name in ` + "`architectures`" + ` of config.json; ` + "`lorafuse inspect`" + ` prints the row of a model.
[diffusion.md](diffusion.md) lists models of pictures. Every linear layer may have an adapter; layers of experts too, by
` + "`target_parameters`" + `. All classes are quantised on load to int8, nf4 or fp8. Files of unquantised models are f32, bf16 or f16.

| class | read | ` + "`task`" + ` | commands | default targets | quantised files | to GGUF |
|---|---|---|---|---|---|---|
`)
	for _, class := range model.Architectures() {
		if model.ModelTypeOf(class) != "" {
			fmt.Fprintf(&b, "| %s | %s |\n", class, strings.Join(Of(class).cells(), " | "))
		}
	}
	return b.String()
}
