package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/merge"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/pretrained"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/lora"
)

// peftForm and mlxForm are the folders of PEFT and of mlx-lm, which package lora writes.
const (
	peftForm = "peft"
	mlxForm  = "mlx"
)

// adapterConvertFlags holds the flags of `adapter convert`.
type adapterConvertFlags struct {
	model, config   string
	to              string
	transformerOnly bool
	modelfile       bool
	force           bool
	json            bool
}

// adapterConversion is the output of `adapter convert --json`.
type adapterConversion struct {
	Input   string   `json:"input"`
	Output  string   `json:"output"`
	Form    string   `json:"form"`
	Modules int      `json:"modules"`
	Tensors int      `json:"tensors"` // of the adapter, before modules are joined
	Rank    int      `json:"rank"`
	Alpha   float64  `json:"alpha"`
	Targets []string `json:"target_modules"`
}

func (a *app) adapter() *cobra.Command {
	c := a.group(&cobra.Command{
		Use:   "adapter",
		Short: "Convert LoRA adapter files between formats",
	})
	c.AddCommand(a.adapterConvert())
	return c
}

func (a *app) adapterConvert() *cobra.Command {
	var f adapterConvertFlags
	c := &cobra.Command{
		Use:   "convert INPUT OUTPUT --model MODEL",
		Short: "Convert an adapter to another format",
		Long: `Convert an adapter of a diffusion transformer from any supported format to another.
INPUT is a file written by diffusers, kohya, musubi-tuner, ComfyUI or ai-toolkit, a
folder with pytorch_lora_weights.safetensors, or a PEFT adapter folder. --model is the
model that the adapter was trained for: a diffusers folder, or only its transformer (a
folder or a single file), local or on the Hub (owner/name[@revision],
owner/name/file.safetensors). Every tensor must match the model. A folder with only
config.json is enough, because weights are neither read nor downloaded.

--to diffusers   pytorch_lora_weights.safetensors, with the PEFT configuration in its
                 metadata, so diffusers loads the adapter at its trained strength
--to kohya       lora_unet_… and .alpha; FLUX layers have the names of the first FLUX
                 release, which fuses q, k and v
--to comfyui     diffusion_model.… and .alpha; for FLUX.2, B includes the scale and
                 .alpha is omitted
--to lycoris     lycoris_… of LoHa and LoKr, which the other formats do not have
--to peft        a folder with adapter_config.json and adapter_model.safetensors

--to gguf        one file for llama.cpp, of a PEFT adapter of a language model (--model);
                 rsLoRA and rank patterns are folded into B. --modelfile adds a Modelfile
                 for ollama create -f, whose FROM names --model
--to mlx         a folder for mlx-lm (adapters.safetensors, adapter_config.json) of
                 an adapter of a language model; layers with other ranks or scales are
                 padded or rescaled
--to plain       one file with MODULE.lora_a.weight, .lora_b.weight and .alpha, of an
                 adapter of a language model

For language models, INPUT may also be a folder of mlx-lm, a GGUF adapter of llama.cpp,
or a file of lora_a and lora_b (.pt or .safetensors, also with the names of torchtune).
These are read wherever folders of PEFT are; --to peft converts them.

diffusers loads only some layers from the kohya and ComfyUI formats: for FLUX.1 only the
blocks; for FLUX.2 neither modulations nor guidance from kohya, and not the last
modulation from ComfyUI. If the adapter has such a layer, the command reports its name.

The strength of the adapter does not change. Values are rescaled only if layers with
different strengths are fused into one.`,
		Example: `  lorafuse adapter convert style.safetensors output --model path/to/flux
  lorafuse adapter convert output/adapter style.safetensors --model Qwen/Qwen-Image --to kohya
  lorafuse adapter convert style.safetensors adapter --model path/to/flux/transformer --to peft
  lorafuse adapter convert output/adapter adapter.gguf --model path/to/model --to gguf`,
		Args: args(2, "INPUT", "OUTPUT"),
		RunE: func(c *cobra.Command, args []string) error {
			if f.model == "" {
				return usagef(c.CommandPath(), "--model is missing: the model that the adapter was trained for, a folder or owner/name on the Hub")
			}
			if f.modelfile && f.to != ggufForm {
				return fmt.Errorf("adapter convert: --modelfile: found --to %s, expected --to %s", f.to, ggufForm)
			}
			r, err := a.runAdapterConvert(c.Context(), args[0], args[1], &f)
			if err != nil {
				return err
			}
			if f.json {
				return a.out.json(r)
			}
			a.out.printf("wrote %d modules of rank %d and alpha %v into %s, in the form of %s\n", r.Modules, r.Rank, r.Alpha, r.Output, r.Form)
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVarP(&f.model, "model", "m", "", "model or its transformer: folder, file or Hub name")
	transformerFlag(c, &f.config)
	flags.StringVar(&f.to, "to", string(dialects.Diffusers), "output format: "+suggest.Or(adapterForms()))
	flags.BoolVar(&f.transformerOnly, "transformer-only", false, "ignore the text-encoder tensors of the file")
	flags.BoolVar(&f.modelfile, "modelfile", false, "with --to gguf, also write a Modelfile for Ollama")
	flags.BoolVar(&f.force, "force", false, "overwrite an existing file")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// adapterForms returns the formats that can be written.
func adapterForms() []string {
	var names []string
	for _, form := range dialects.Forms() {
		names = append(names, string(form))
	}
	return append(names, string(dialects.Lycoris), peftForm, ggufForm, mlxForm, string(dialects.Plain))
}

// runAdapterConvert reads the adapter and writes it.
func (a *app) runAdapterConvert(ctx context.Context, input, output string, f *adapterConvertFlags) (*adapterConversion, error) {
	if f.to == ggufForm || f.to == mlxForm || f.to == string(dialects.Plain) {
		return a.runAdapterText(ctx, input, output, f)
	}
	adapter, text, err := dialects.Detect(input)
	if err != nil {
		return nil, err
	}
	if text {
		return a.runAdapterText(ctx, input, output, f)
	}
	if adapter != nil {
		defer adapter.Close()
	}
	if !slices.Contains(adapterForms(), f.to) {
		return nil, fmt.Errorf("adapter convert: --to: %s", suggest.Expected(f.to, adapterForms()))
	}
	path, err := f.file(output)
	if err != nil {
		return nil, err
	}
	pipeline, err := a.openPipeline(ctx, "adapter convert", f.model, diffusion.Single{Config: f.config})
	if err != nil {
		return nil, err
	}
	config, layers, err := pipeline.Modules()
	if err != nil {
		return nil, err
	}
	modules := lora.ModelOf(config.ModelType, layers)
	if adapter == nil {
		if adapter, err = dialects.Open(input, modules, dialects.Options{TransformerOnly: f.transformerOnly}); err != nil {
			return nil, err
		}
		defer adapter.Close()
	}
	p, err := lora.NewPlacement(adapter.Config, modules)
	if err != nil {
		return nil, fmt.Errorf("adapter convert: %s: %w", input, err)
	}
	var tensors []lora.Tensor
	for _, key := range adapter.Names() {
		t, _ := adapter.Tensor(key)
		tensors = append(tensors, lora.Tensor{Key: key, Tensor: t})
	}
	if f.to == peftForm {
		err = lora.Save(output, p.Config(), tensors)
	} else if err = os.MkdirAll(filepath.Dir(path), 0o777); err == nil {
		err = dialects.Write(path, dialects.Form(f.to), modules, adapter.Config, tensors)
	}
	if err != nil {
		return nil, fmt.Errorf("adapter convert: %s: %w", output, err)
	}
	c := p.Config()
	return &adapterConversion{
		Input: input, Output: path, Form: f.to, Modules: len(p.Targets), Tensors: len(tensors),
		Rank: c.R, Alpha: c.LoraAlpha, Targets: append([]string{}, c.TargetModules.Names...),
	}, nil
}

// runAdapterText writes an adapter of a language model for llama.cpp, mlx-lm or PEFT.
func (a *app) runAdapterText(ctx context.Context, input, output string, f *adapterConvertFlags) (*adapterConversion, error) {
	written := output
	switch {
	case f.to == ggufForm && !strings.HasSuffix(output, ".gguf"):
		return nil, fmt.Errorf("adapter convert: OUTPUT: found %q, expected a file name that ends in .gguf", output)
	case f.to == string(dialects.Plain) && !isFile(output):
		return nil, fmt.Errorf("adapter convert: OUTPUT: found %q, expected a file name that ends in .safetensors", output)
	case f.to == mlxForm:
		written = filepath.Join(output, lora.MLXWeightsFile)
	case f.to == peftForm:
		written = filepath.Join(output, lora.WeightsFile)
	case f.to != ggufForm && f.to != string(dialects.Plain):
		return nil, fmt.Errorf("adapter convert: --to: found %q for an adapter of a language model, expected %s", f.to, suggest.Or([]string{peftForm, ggufForm, mlxForm, string(dialects.Plain)}))
	}
	if same, err := sameFolder(input, output); err != nil {
		return nil, err
	} else if same {
		return nil, fmt.Errorf("adapter convert: OUTPUT: found %s, the folder of INPUT, expected another", output)
	}
	if _, err := os.Stat(written); err == nil && !f.force {
		return nil, fmt.Errorf("adapter convert: %s already exists; --force overwrites it", written)
	}
	dir, err := hub.Resolve(ctx, f.model, a.hubOptions())
	if err != nil {
		return nil, err
	}
	options := pretrained.Options{Adapter: input, Note: func(text string) { a.note("note     %s", text) }}
	m, err := pretrained.OpenModel(dir, options)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	adapter, p, err := pretrained.OpenAdapter(input, m, options)
	if err != nil {
		return nil, err
	}
	defer adapter.Close()
	switch f.to {
	case ggufForm:
		if _, err = dialects.WriteGGUF(output, m, adapter, p); err == nil && f.modelfile {
			err = merge.WriteModelfile(output, f.model)
		}
	case string(dialects.Plain):
		err = dialects.WritePlain(output, adapter, p)
	case mlxForm:
		var names []string
		for _, module := range m.Modules() {
			names = append(names, module.Name)
		}
		err = lora.SaveMLX(output, adapter, p, names)
	default:
		var tensors []lora.Tensor
		for _, key := range adapter.Names() {
			t, _ := adapter.Tensor(key)
			tensors = append(tensors, lora.Tensor{Key: key, Tensor: t})
		}
		err = lora.Save(output, p.Config(), tensors)
	}
	if err != nil {
		return nil, err
	}
	c := p.Config()
	return &adapterConversion{
		Input: input, Output: written, Form: f.to, Modules: len(p.Targets), Tensors: len(adapter.Names()),
		Rank: c.R, Alpha: c.LoraAlpha, Targets: append([]string{}, c.TargetModules.Names...),
	}, nil
}

// sameFolder reports whether two paths are one folder or file.
func sameFolder(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if err != nil {
		return false, fmt.Errorf("adapter convert: %w", err)
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y), nil
}

// file returns the path of the output file: OUTPUT itself, or a file in it.
func (f *adapterConvertFlags) file(output string) (string, error) {
	path := output
	switch {
	case f.to == peftForm && isFile(output):
		return "", fmt.Errorf("adapter convert: OUTPUT %s: PEFT's form is a folder", output)
	case f.to == peftForm:
		path = filepath.Join(output, lora.WeightsFile)
	case f.to == string(dialects.Diffusers) && !isFile(output):
		path = filepath.Join(output, dialects.File)
	case !isFile(output):
		return "", fmt.Errorf("adapter convert: OUTPUT %s: the form %s is one file, whose name ends in .safetensors", output, f.to)
	}
	if _, err := os.Stat(path); err == nil && !f.force {
		return "", fmt.Errorf("adapter convert: %s already exists; --force overwrites it", path)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("adapter convert: %w", err)
	}
	return path, nil
}
