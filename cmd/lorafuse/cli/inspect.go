package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// inspectFlags holds the flags of `inspect`.
type inspectFlags struct {
	modelFlags
	json   bool
	stats  bool
	verify bool
	tensor string
}

// inspection is the output of `inspect --json`.
type inspection struct {
	Path     string            `json:"path"`
	Kind     string            `json:"kind"`             // file, adapter or model
	Format   string            `json:"format,omitempty"` // of the weights
	Why      string            `json:"why,omitempty"`    // another file, or another format than the name suggests
	Model    *modelReport      `json:"model,omitempty"`
	Adapter  *adapterReport    `json:"adapter,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Verify   *verification     `json:"verify,omitempty"`
	Elements int64             `json:"elements"`
	Bytes    int64             `json:"bytes"`
	Tensors  []tensorInfo      `json:"tensors"`
}

type tensorInfo struct {
	Name   string      `json:"name"`
	DType  string      `json:"dtype"`
	Shape  []int       `json:"shape"`
	Bytes  int         `json:"bytes"`
	Codes  string      `json:"quantized,omitempty"` // what the tensor holds the codes of, such as nf4 [64 64]
	File   string      `json:"file,omitempty"`      // of a sharded model
	CRC32C string      `json:"crc32c,omitempty"`
	Stats  *statistics `json:"stats,omitempty"`
}

func (a *app) inspect() *cobra.Command {
	var f inspectFlags
	c := &cobra.Command{
		Use:   "inspect PATH",
		Short: "Show the contents of a tensor file, adapter or model",
		Long: `List the tensors of a file, an adapter folder or a model folder, with element types,
shapes, sizes and metadata. A file may be safetensors or written by torch.save (.pt,
.pth, .bin, .ckpt); nothing in it is executed. Only headers are read.

For a model, the output has the architecture, whether it is supported, the number of
parameters and the unused tensors. For an adapter, it explains the configuration; with
--model it checks every target and tensor against the model, and the exit status is 1
if they do not match. PATH may be owner/name of a model in the Hugging Face cache or on
the Hub, or the URL of a safetensors file, whose header alone is fetched.

--stats reads all values and prints minimum, maximum, mean, standard deviation, the
fractions of zeros, NaN and infinities, and a histogram. --verify reads every byte and
checks booleans, the index of a sharded model, and the SHA-256 of files against
PATH.sha256 or the Hugging Face cache; the exit status is 1 if there is a problem. NaN,
tensors of zeros and duplicates are warnings.`,
		Example: `  lorafuse inspect model.safetensors
  lorafuse inspect pytorch_model.bin --stats
  lorafuse inspect path/to/model --stats --tensor "*norm*"
  lorafuse inspect path/to/model --verify
  lorafuse inspect output/adapter --model path/to/model
  lorafuse inspect path/to/model --json`,
		Args: args(1, "PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			f.command = c.Name()
			i, err := a.runInspect(c.Context(), args[0], &f)
			if err != nil {
				return err
			}
			if f.json {
				err = a.out.json(i)
			} else {
				a.printInspection(i)
			}
			switch {
			case err != nil:
			case i.Verify != nil && len(i.Verify.Problems) > 0:
				more := ""
				if n := len(i.Verify.Problems) - 1; n > 0 {
					more = fmt.Sprintf("; %d more", n)
				}
				err = differs("inspect: %s: %s%s", i.Path, i.Verify.Problems[0], more)
			case i.Adapter != nil && len(i.Adapter.Problems) > 0:
				err = differs("inspect: %s does not fit %s: %s", i.Path, f.model, i.Adapter.Problems[0])
			}
			return err
		},
	}
	flags := c.Flags()
	flags.StringVarP(&f.model, "model", "m", "", "model of the adapter: folder, or owner/name[@revision] on the Hub")
	flags.BoolVar(&f.stats, "stats", false, "read all values and print statistics")
	flags.BoolVar(&f.verify, "verify", false, "read all bytes and check them")
	flags.StringVar(&f.tensor, "tensor", "", "pattern of tensor names to show, where * matches any text")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// runInspect detects the kind of path and inspects it.
func (a *app) runInspect(ctx context.Context, path string, f *inspectFlags) (*inspection, error) {
	path, err := a.findWeights(ctx, f.command, path)
	if err != nil {
		return nil, err
	}
	i := &inspection{Path: path, Kind: "file", Tensors: []tensorInfo{}}
	has := func(name string) bool { return exists(filepath.Join(path, name)) }
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		i.Kind = "model"
		if has(lora.ConfigFile) {
			i.Kind = "adapter"
		}
	}
	if f.model != "" && dialects.IsText(path) {
		i.Kind = "adapter"
	}
	if f.model != "" && i.Kind != "adapter" {
		return nil, fmt.Errorf("inspect: --model goes with an adapter's folder, %s has no %s", path, lora.ConfigFile)
	}
	if f.verify && isURL(path) {
		return nil, fmt.Errorf("inspect: --verify reads files of this machine, found %s", path)
	}
	set, err := a.openWeights(ctx, path)
	switch {
	case err == nil:
		defer set.Close()
	case i.Kind != "model":
		return nil, err
	case errors.Is(err, weights.ErrNoWeights) && !has(weights.ConfigFile):
		return nil, fmt.Errorf("inspect: %s is a folder without config.json, %s or %s", path, safetensors.ModelFile, lora.ConfigFile)
	case errors.Is(err, weights.ErrNoWeights), errors.Is(err, safetensors.ErrMissingShard) && !f.verify:
		set = nil // what else there is, is of interest
	default:
		return nil, err
	}
	switch i.Kind {
	case "model":
		i.inspectModel(set)
	case "adapter":
		if err := a.inspectAdapter(ctx, i, &f.modelFlags); err != nil {
			return nil, err
		}
	}
	if set == nil {
		return i, nil
	}
	if err := i.add(set); err != nil {
		return nil, err
	}
	return i, a.lookInside(ctx, i, set, f)
}

// add lists the tensors.
func (i *inspection) add(set *weights.Set) error {
	i.Metadata, _ = set.Metadata()
	i.Format, i.Why = strings.Join(set.Formats(), ", "), set.Why()
	for _, f := range set.Files() {
		for _, name := range f.Names() {
			v, err := f.Lookup(name)
			if err != nil {
				return err
			}
			n := int64(1)
			for _, d := range v.Shape {
				n *= int64(d)
			}
			i.Elements += n
			i.Bytes += int64(v.Len())
			t := tensorInfo{Name: name, DType: v.DType.String(), Shape: append([]int{}, v.Shape...), Bytes: v.Len()}
			if i.Model != nil {
				t.Codes = i.Model.codes[name]
			}
			if set.Index != nil {
				t.File = set.Name(f.Path())
			}
			i.Tensors = append(i.Tensors, t)
		}
	}
	return nil
}

func (a *app) printInspection(i *inspection) {
	rows := [][]string{{i.Kind, i.Path}}
	rows[0][1] += describeFormat(i.Format, i.Why)
	if i.Model != nil {
		rows = append(rows, i.Model.rows()...)
	}
	if i.Adapter != nil {
		rows = append(rows, i.Adapter.rows()...)
	}
	rows = append(rows, []string{"tensors", fmt.Sprintf("%d with %d elements, %s", len(i.Tensors), i.Elements, bytesize.Binary(i.Bytes))})
	for _, k := range slices.Sorted(maps.Keys(i.Metadata)) {
		rows = append(rows, []string{"metadata", fmt.Sprintf("%s = %s", oneLine(k), oneLine(i.Metadata[k]))})
	}
	if i.Verify != nil {
		rows = append(rows, i.Verify.rows()...)
	}
	a.out.table(rows)
	if i.Adapter != nil {
		a.printTargets(i.Adapter)
	}
	if len(i.Tensors) > 0 {
		a.out.table(i.table())
	}
}

// describeFormat describes a format other than the usual one.
func describeFormat(format, why string) string {
	switch {
	case why != "":
		return fmt.Sprintf(" (%s: %s)", format, oneLine(why))
	case format != "safetensors" && format != "":
		return fmt.Sprintf(" (%s)", format)
	}
	return ""
}

// table lists the tensors.
func (i *inspection) table() [][]string {
	head := []string{"", "TENSOR", "DTYPE", "SHAPE", "SIZE"}
	sharded, stats := i.Tensors[0].File != "", slices.ContainsFunc(i.Tensors, func(t tensorInfo) bool { return t.Stats != nil })
	if sharded {
		head = append(head, "FILE")
	}
	if stats {
		head = append(head, "MIN", "MAX", "MEAN", "STD", "ZERO", "NAN", "INF", "HISTOGRAM")
	}
	table := [][]string{head}
	for _, t := range i.Tensors {
		shape := fmt.Sprint(t.Shape)
		if t.Codes != "" {
			shape += " of " + t.Codes
		}
		row := []string{"", oneLine(t.Name), t.DType, shape, bytesize.Binary(int64(t.Bytes))}
		if sharded {
			row = append(row, t.File)
		}
		if stats {
			row = append(row, t.Stats.columns()...)
		}
		table = append(table, row)
	}
	return table
}
