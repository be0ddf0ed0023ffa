package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/merge"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// mergeFlags holds the flags of `merge`.
type mergeFlags struct {
	modelFlags
	output string
	dtype  string
	shard  string
	force  bool
	json   bool
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
		Use:   "merge --model DIR --adapter DIR --output DIR",
		Short: "Merge an adapter into its base model",
		Long: `Write the base model with the adapter merged into its weights, as a model folder that
any program can load. Weights are processed one at a time, so a model larger than memory
can be merged. Tied embeddings that the adapter changes separately are untied, in the
weights and in config.json.

The output is read back and compared with the computed values before the folder gets
its name, so the folder is either complete or absent.`,
		Example: `  lorafuse merge --model path/to/model --adapter output/adapter --output merged
  lorafuse merge --model path/to/model --adapter output/adapter --output merged --dtype bf16 --max-shard-size 2GB`,
		Args: args(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if f.adapter == "" {
				return usagef(c.CommandPath(), "--adapter is missing: the folder of a PEFT adapter")
			}
			if f.output == "" {
				return usagef(c.CommandPath(), "--output is missing: the folder to write")
			}
			r, err := a.runMerge(c.Context(), &f)
			if err != nil {
				return err
			}
			if f.json {
				return a.out.json(r)
			}
			a.out.printf("merged %d of %d tensors, %s, into %s; read back and verified\n", r.Merged, r.Tensors, bytesize.Binary(r.Bytes), r.Output)
			for _, name := range r.Untied {
				a.out.printf("untied %s: config.json says tie_word_embeddings: false\n", name)
			}
			return nil
		},
	}
	f.flags(c)
	flags := c.Flags()
	flags.StringVarP(&f.output, "output", "o", "", "folder to write; its parent must exist")
	flags.StringVar(&f.dtype, "dtype", "keep", "element type of the weights: keep, f32, bf16 or f16")
	flags.StringVar(&f.shard, "max-shard-size", "5GB", "size of the largest file, such as 500MB or 2GiB")
	flags.BoolVar(&f.force, "force", false, "replace a non-empty output folder, with everything in it")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// runMerge writes the output folder.
func (a *app) runMerge(ctx context.Context, f *mergeFlags) (*mergeResult, error) {
	o := lorafuse.MergeOptions{Replace: f.force, Download: a.hubOptions().Progress, Note: func(text string) { a.note("note     %s", text) }}
	var err error
	if o.DType, err = parseMergeType(f.dtype); err != nil {
		return nil, err
	}
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

// inFlags rewords an error of the merge in terms of the flags and marks errors that are not about the input.
func inFlags(err error) error {
	var output *merge.OutputError
	switch {
	case errors.Is(err, merge.ErrNotEmpty) && errors.As(err, &output):
		return fmt.Errorf("merge: --output %s: %w; --force replaces it with all that is in it", output.Dir, output.Err)
	case errors.As(err, &output):
		return fmt.Errorf("merge: --output %s: %w", output.Dir, output.Err)
	case errors.Is(err, merge.ErrVerify):
		return &failure{err}
	}
	return err
}

// parseMergeType returns Invalid for keep.
func parseMergeType(s string) (tensor.DType, error) {
	types := map[string]tensor.DType{"keep": tensor.Invalid, "f32": tensor.F32, "bf16": tensor.BF16, "f16": tensor.F16}
	if d, ok := types[strings.ToLower(s)]; ok {
		return d, nil
	}
	return 0, fmt.Errorf("merge: --dtype: found %q, expected keep, f32, bf16 or f16%s", s, suggest.DidYouMean(s, []string{"keep", "f32", "bf16", "f16"}))
}
