package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/merge"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// mergeFlags holds the flags of `merge`.
type mergeFlags struct {
	modelFlags
	output    string
	to        string
	dtype     string
	shard     string
	modelfile bool
	force     bool
	json      bool
}

// mergeResult is the output of `merge --json`.
type mergeResult struct {
	Output string `json:"output"`
	*lorafuse.MergedModel
	// Verified reports that the files were read back and match the computed values.
	Verified bool `json:"verified"`
}

func (a *app) merge() *cobra.Command {
	var f mergeFlags
	c := &cobra.Command{
		Use:   "merge --model DIR --adapter DIR --output PATH",
		Short: "Merge an adapter into its base model",
		Long: `Write the base model with the adapter merged into its weights, as a model folder that
any program can load. Weights are processed one at a time, so a model larger than memory
can be merged. Tied embeddings that the adapter changes separately are untied, in the
weights and in config.json. A model that is stored in fp8 stays so, with scales of the
same blocks, and the error of rounding is printed; --dtype bf16 writes it unquantised.
A model of GPTQ or AWQ becomes bf16, or the type of --dtype.

--to gguf writes one file for llama.cpp and programs based on it, with tokenizer, chat
template and all metadata. --dtype may then also be q8_0, q4_0, q4_k or q6_k; vectors
stay f32, and with q4_0 and q4_k the output matrix is q6_k. Without --adapter the model
itself is written. --modelfile adds a Modelfile for ollama create -f.

The output is read back and compared with the computed values before it gets its name,
so it is either complete or absent.`,
		Example: `  lorafuse merge --model path/to/model --adapter output/adapter --output merged
  lorafuse merge --model path/to/model --adapter output/adapter --output merged --dtype bf16 --max-shard-size 2GB
  lorafuse merge --model path/to/model --adapter output/adapter --to gguf --dtype q4_k --output merged.gguf`,
		Args: args(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if !slices.Contains(mergeForms, f.to) {
				return fmt.Errorf("merge: --to: %s", suggest.Expected(f.to, mergeForms))
			}
			if f.adapter == "" && f.to != ggufForm {
				return usagef(c.CommandPath(), "--adapter is missing: the folder of a PEFT adapter")
			}
			if f.output == "" {
				return usagef(c.CommandPath(), "--output is missing: the folder, or with --to gguf the file, to write")
			}
			r, err := a.runMerge(c.Context(), &f)
			if err != nil {
				return err
			}
			if f.json {
				return a.out.json(r)
			}
			if f.adapter == "" {
				a.out.printf("wrote %d tensors, %s, into %s; read back and verified\n", r.Tensors, bytesize.Binary(r.Bytes), r.Output)
				return nil
			}
			a.out.printf("merged %d of %d tensors, %s, into %s; read back and verified\n", r.Merged, r.Tensors, bytesize.Binary(r.Bytes), r.Output)
			if r.Rounding > 0 {
				a.out.printf("fp8 rounds the merged weights by %.2g %% of their size, which is %.2g times the adapter's change; --dtype bf16 rounds less\n", 100*r.Rounding, r.RoundedChange)
			}
			for _, name := range r.Untied {
				a.out.printf("untied %s: config.json says tie_word_embeddings: false\n", name)
			}
			return nil
		},
	}
	f.flags(c)
	flags := c.Flags()
	flags.StringVarP(&f.output, "output", "o", "", "folder or GGUF file to write; its parent must exist")
	flags.StringVar(&f.to, "to", folderForm, "output format: folder or gguf")
	flags.StringVar(&f.dtype, "dtype", "keep", "element type of the weights: keep, f32, bf16 or f16, or fp8 for a model that is stored so; for gguf also q8_0, q4_0, q4_k or q6_k")
	flags.StringVar(&f.shard, "max-shard-size", "5GB", "size of the largest file, such as 500MB or 2GiB")
	flags.BoolVar(&f.modelfile, "modelfile", false, "with --to gguf, also write a Modelfile for Ollama")
	flags.BoolVar(&f.force, "force", false, "replace an existing file, or a non-empty output folder with everything in it")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// runMerge writes the output folder.
func (a *app) runMerge(ctx context.Context, f *mergeFlags) (*mergeResult, error) {
	o := lorafuse.MergeOptions{Replace: f.force, Download: a.hubOptions().Progress, Note: func(text string) { a.note("note     %s", text) }}
	if err := f.options(&o); err != nil {
		return nil, err
	}
	var err error
	if o.MaxShardSize, err = safetensors.ParseSize(f.shard); err != nil {
		return nil, fmt.Errorf("merge: --max-shard-size: %w", err)
	}
	if f.model == "" {
		return nil, noModel("lorafuse merge")
	}
	var running work
	steps := a.tasks()
	o.Progress = func(task string, done, total int) {
		running.begun.Store(true)
		steps(task, done, total)
	}
	r, err := lorafuse.Merge(ctx, f.model, f.adapter, f.output, o)
	if err != nil {
		return nil, running.failed(inFlags(errors.Unwrap(err))) // without the name of the function
	}
	a.close()
	r.Untied = append([]string{}, r.Untied...)
	return &mergeResult{f.output, r, true}, nil
}

// The values of --to.
const (
	folderForm = "folder"
	ggufForm   = "gguf"
)

var mergeForms = []string{folderForm, ggufForm}

// options sets the options that depend on the output format.
func (f *mergeFlags) options(o *lorafuse.MergeOptions) (err error) {
	if f.to != ggufForm {
		if f.modelfile {
			return errors.New("merge: --modelfile: found a folder, expected --to gguf")
		}
		o.DType, err = parseMergeType(f.dtype)
		return err
	}
	if !strings.HasSuffix(f.output, ".gguf") {
		return fmt.Errorf("merge: --output: found %q, expected a file name that ends in .gguf", f.output)
	}
	types := append([]string{"keep"}, gguf.Writable()...)
	kind := strings.ToLower(f.dtype)
	if !slices.Contains(types, kind) {
		return fmt.Errorf("merge: --dtype: %s", suggest.Expected(f.dtype, types))
	}
	o.GGUF = &lorafuse.GGUFOptions{Modelfile: f.modelfile}
	if kind != "keep" {
		o.GGUF.Type = kind
	}
	return nil
}

// inFlags rewords an error of the merge in terms of the flags and marks errors that are not about the input.
func inFlags(err error) error {
	var output *merge.OutputError
	switch {
	case errors.Is(err, merge.ErrNotEmpty) && errors.As(err, &output):
		return fmt.Errorf("merge: --output %s: %w; --force replaces it with all that is in it", output.Dir, output.Err)
	case errors.Is(err, os.ErrExist) && errors.As(err, &output):
		return fmt.Errorf("merge: --output %s: the file exists; --force replaces it", output.Dir)
	case errors.As(err, &output):
		return fmt.Errorf("merge: --output %s: %w", output.Dir, output.Err)
	case errors.Is(err, merge.ErrVerify):
		return &failure{err}
	}
	return err
}

// parseMergeType returns Invalid for keep.
func parseMergeType(s string) (tensor.DType, error) {
	types := map[string]tensor.DType{"keep": tensor.Invalid, "f32": tensor.F32, "bf16": tensor.BF16, "f16": tensor.F16, "fp8": tensor.F8E4M3}
	if d, ok := types[strings.ToLower(s)]; ok {
		return d, nil
	}
	return 0, fmt.Errorf("merge: --dtype: found %q, expected keep, f32, bf16, f16 or fp8%s", s, suggest.DidYouMean(s, []string{"keep", "f32", "bf16", "f16", "fp8"}))
}
