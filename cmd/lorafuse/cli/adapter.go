package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/lora"
)

// peftForm is the folder of PEFT, which package lora writes.
const peftForm = "peft"

// adapterConvertFlags holds the flags of `adapter convert`.
type adapterConvertFlags struct {
	model, config   string
	to              string
	transformerOnly bool
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
		Short: "Look after the files of adapters",
	})
	c.AddCommand(a.adapterConvert())
	return c
}

func (a *app) adapterConvert() *cobra.Command {
	var f adapterConvertFlags
	c := &cobra.Command{
		Use:   "convert INPUT OUTPUT --model MODEL",
		Short: "Rewrite an adapter of a diffusion transformer as another tool names it",
		Long: `Read an adapter of a diffusion transformer in any form and write it in another. INPUT
is a file of diffusers, kohya, musubi-tuner, ComfyUI or ai-toolkit, a folder with a
pytorch_lora_weights.safetensors, or a folder of PEFT's. --model is the model that it is
for: a folder of diffusers, or its transformer alone, a folder or a single file, here or
on the hub (owner/name[@revision], owner/name/file.safetensors). Every tensor must belong
to it. Of a folder config.json is enough: weights are not read, nor downloaded.

--to diffusers   pytorch_lora_weights.safetensors, with PEFT's configuration in the
                 metadata, so that diffusers loads it with the strength it was trained at
--to kohya       lora_unet_… and .alpha; layers of FLUX have the names of its first
                 release, where q, k and v are one
--to comfyui     diffusion_model.… and .alpha; of FLUX.2 B times the scale, without it
--to peft        a folder with adapter_config.json and adapter_model.safetensors

diffusers does not load all layers from the kohya and ComfyUI formats: only the blocks
of FLUX.1; for FLUX.2 no modulations and no guidance from kohya's, and not the last
modulation from ComfyUI's. An adapter of such a layer is an error that names the layer.

Strength stays what it is: numbers are not scaled but where parts that have become one
layer differ in theirs.`,
		Example: `  lorafuse adapter convert style.safetensors output --model path/to/flux
  lorafuse adapter convert output/adapter style.safetensors --model Qwen/Qwen-Image --to kohya
  lorafuse adapter convert style.safetensors adapter --model path/to/flux/transformer --to peft`,
		Args: args(2, "INPUT", "OUTPUT"),
		RunE: func(c *cobra.Command, args []string) error {
			if f.model == "" {
				return usagef(c.CommandPath(), "--model is missing: the model that the adapter is for, a folder or owner/name on the hub")
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
	flags.StringVarP(&f.model, "model", "m", "", "the model, or its transformer: folder, file, or name on the hub")
	transformerFlag(c, &f.config)
	flags.StringVar(&f.to, "to", string(dialects.Diffusers), "form to write: "+suggest.Or(adapterForms()))
	flags.BoolVar(&f.transformerOnly, "transformer-only", false, "leave out what the file has for text encoders")
	flags.BoolVar(&f.force, "force", false, "replace the file that is there")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// adapterForms returns the formats that can be written.
func adapterForms() []string {
	var names []string
	for _, form := range dialects.Forms() {
		names = append(names, string(form))
	}
	return append(names, peftForm)
}

// runAdapterConvert reads the adapter and writes it.
func (a *app) runAdapterConvert(ctx context.Context, input, output string, f *adapterConvertFlags) (*adapterConversion, error) {
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
	adapter, err := dialects.Open(input, modules, dialects.Options{TransformerOnly: f.transformerOnly})
	if err != nil {
		return nil, err
	}
	defer adapter.Close()
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
		return "", fmt.Errorf("adapter convert: %s is there already; --force replaces it", path)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("adapter convert: %w", err)
	}
	return path, nil
}
