package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/convert"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// convertFlags holds the flags of `convert`.
type convertFlags struct {
	dtype    string
	keep     []string
	shard    string
	stem     string
	dropTied bool
	verify   bool
	force    bool
	json     bool
}

// conversion is the output of `convert --json`.
type conversion struct {
	Input    string       `json:"input"`
	Format   string       `json:"format"`        // of the input
	Why      string       `json:"why,omitempty"` // another file, or another format than the name suggests
	Output   string       `json:"output"`
	Tensors  int          `json:"tensors"`
	BytesIn  int64        `json:"bytes_in"`
	BytesOut int64        `json:"bytes_out"`
	Files    []string     `json:"files"`
	Copied   []string     `json:"copied"`
	Changes  []typeChange `json:"changes"`
	Tied     [][]string   `json:"tied"` // names of tensors with the same bytes
	DropTied bool         `json:"drop_tied"`
	Dropped  []string     `json:"dropped"` // contents of the input other than tensors
	Absent   []string     `json:"absent"`  // names that the input's index lists in vain
	Metadata []string     `json:"metadata_conflicts"`
	Verified bool         `json:"verified"`
}

// typeChange describes the conversion of tensors of one element type.
type typeChange struct {
	From       string  `json:"from"`
	To         string  `json:"to"`
	Tensors    int     `json:"tensors"`
	Elements   int64   `json:"elements"`
	MaxAbs     float64 `json:"max_abs"`
	Relative   float64 `json:"relative"`
	At         string  `json:"at,omitempty"`
	Overflow   int64   `json:"overflow"`
	OverflowAt string  `json:"overflow_at,omitempty"`
	Underflow  int64   `json:"underflow"`
}

func (a *app) convert() *cobra.Command {
	var f convertFlags
	c := &cobra.Command{
		Use:   "convert INPUT OUTPUT",
		Short: "Convert weights to safetensors; reshard or change dtype",
		Long: `Write the tensors of INPUT as safetensors. INPUT is a safetensors file, a file written by
torch.save (.pt, .pth, .bin, .ckpt; nothing in it is executed), the index of a sharded
model, a folder with any of these, a URL, or owner/name on the Hub. If OUTPUT ends in
.safetensors it is a file, otherwise a folder of shards. If INPUT is a folder too, the
other files of the model are copied: configuration, tokenizer, license.

--dtype converts floating-point tensors; integers, booleans, complex numbers and types of
less than a byte keep their type. The effect of rounding is summarized, and values out
of range cause a warning. Tensors that share their bytes, such as tied weights of a
PyTorch file, are written once per name, so every program can load them. --drop-tied
writes only the first and lists the other names in the metadata.

Weights are processed in chunks, so a model larger than memory can be converted. The
output is read back and verified before it gets its name, so OUTPUT is either complete or
absent.`,
		Example: `  lorafuse convert pytorch_model.bin model.safetensors
  lorafuse convert path/to/model converted --dtype bf16 --keep "*norm*" --max-shard-size 2GB
  lorafuse convert model.safetensors.index.json model.safetensors`,
		Args: args(2, "INPUT", "OUTPUT"),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := a.runConvert(c, args[0], args[1], &f)
			if err != nil {
				return err
			}
			if f.json {
				return a.out.json(r)
			}
			a.printConversion(r)
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.dtype, "dtype", "keep", "element type of floats: keep, "+strings.Join(floatNames(), ", "))
	flags.StringArrayVar(&f.keep, "keep", nil, "pattern of tensor names that keep their type, where * matches any text (repeatable)")
	flags.StringVar(&f.shard, "max-shard-size", "5GB", "size of the largest file in a folder, such as 500MB or 2GiB")
	flags.StringVar(&f.stem, "stem", "", "base name of the files in a folder, such as model or adapter_model (default: as in INPUT)")
	flags.BoolVar(&f.dropTied, "drop-tied", false, "write tensors that share their bytes only once")
	flags.BoolVar(&f.verify, "verify", true, "read the output back and compare it")
	flags.BoolVar(&f.force, "force", false, "replace an existing file or folder, with everything in it")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// runConvert opens the input and writes the output.
func (a *app) runConvert(c *cobra.Command, input, output string, f *convertFlags) (*conversion, error) {
	o, err := f.options(c, output)
	if err != nil {
		return nil, err
	}
	path, err := a.findWeights(c.Context(), c.Name(), input)
	if err != nil {
		return nil, err
	}
	set, err := a.openWeights(c.Context(), path)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	if o.Keep, err = keepGlobs(f.keep, set.Names()); err != nil {
		return nil, err
	}
	dropped, err := dropped(set)
	if err != nil {
		return nil, err
	}
	r := &conversion{
		Input: input, Format: strings.Join(set.Formats(), ", "), Why: set.Why(), Output: output, DropTied: f.dropTied,
		Absent: append([]string{}, set.Absent()...), Dropped: dropped,
	}
	_, conflicts := set.Metadata()
	r.Metadata = append([]string{}, conflicts...)
	report, running := a.loading(), work{}
	o.Progress = func(task string, done, total int64) {
		running.begun.Store(true)
		report(task, done, total)
	}
	write := convert.Folder
	if isFile(output) {
		write = convert.File
	}
	done, err := write(c.Context(), output, set, *o)
	a.close()
	if err != nil {
		return nil, running.failed(convertError(err))
	}
	r.take(done)
	return r, nil
}

// dropped lists the contents of the input other than tensors.
func dropped(set *weights.Set) ([]string, error) {
	scalars, err := set.Scalars()
	if err != nil {
		return nil, err
	}
	list := []string{}
	for _, name := range slices.Sorted(maps.Keys(scalars)) {
		text := fmt.Sprint(scalars[name])
		switch v := scalars[name].(type) {
		case nil:
			text = "None"
		case string, []byte:
			text = fmt.Sprintf("%q", v)
		}
		if most := 60; len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + "…"
		}
		list = append(list, name+" = "+text)
	}
	return list, nil
}

// isFile reports whether the output is one file.
func isFile(output string) bool { return strings.EqualFold(filepath.Ext(output), ".safetensors") }

// otherFormats are the extensions of weight files in formats that convert does not write.
var otherFormats = []string{
	".gguf", ".ggml", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".onnx", ".h5", ".hdf5", ".keras", ".msgpack", ".tflite", ".npz", ".npy", ".mlmodel", ".mlpackage", ".pb",
}

// options checks the flags.
func (f *convertFlags) options(c *cobra.Command, output string) (*convert.Options, error) {
	o := &convert.Options{Stem: f.stem, DropTied: f.dropTied, Replace: f.force, Unverified: !f.verify}
	var err error
	if o.DType, err = parseFloatType(f.dtype); err != nil {
		return nil, fmt.Errorf("convert: --dtype: %w", err)
	}
	if o.MaxShardSize, err = safetensors.ParseSize(f.shard); err != nil {
		return nil, fmt.Errorf("convert: --max-shard-size: %w", err)
	}
	switch ext := strings.ToLower(filepath.Ext(output)); {
	case isFile(output) && c.Flags().Changed("max-shard-size"):
		return nil, usagef(c.CommandPath(), "--max-shard-size: %s is one file; name a folder for shards", output)
	case isFile(output) && f.stem != "":
		return nil, usagef(c.CommandPath(), "--stem: %s is one file and has its name", output)
	case slices.Contains(otherFormats, ext):
		return nil, usagef(c.CommandPath(), "OUTPUT %s: %s files are not written; expected a file that ends in .safetensors, or a folder", output, ext)
	case len(f.keep) > 0 && o.DType == tensor.Invalid:
		return nil, usagef(c.CommandPath(), "--keep goes with --dtype: without it all types are kept")
	}
	return o, nil
}

// floatTypes maps names to the types that weights can be converted to.
func floatTypes() map[string]tensor.DType {
	types := map[string]tensor.DType{}
	for _, d := range convert.Types() {
		types[strings.ToLower(d.String())] = d
	}
	return types
}

func floatNames() []string {
	var names []string
	for _, d := range convert.Types() {
		names = append(names, strings.ToLower(d.String()))
	}
	return names
}

// parseFloatType returns Invalid for keep.
func parseFloatType(s string) (tensor.DType, error) {
	name := strings.ToLower(s)
	if name == "keep" {
		return tensor.Invalid, nil
	}
	if d, ok := floatTypes()[name]; ok {
		return d, nil
	}
	names := append([]string{"keep"}, floatNames()...)
	return 0, fmt.Errorf("found %q, expected one of %s%s", s, strings.Join(names, ", "), suggest.DidYouMean(s, names))
}

// keepGlobs joins the patterns of --keep, nil for none.
func keepGlobs(patterns, names []string) (func(string) bool, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	var globs []glob
	for _, p := range patterns {
		g := newGlob(p)
		if err := g.check("keep", names); err != nil {
			return nil, fmt.Errorf("convert: %w", err)
		}
		globs = append(globs, g)
	}
	return func(name string) bool {
		for _, g := range globs {
			if g.matches(name) {
				return true
			}
		}
		return false
	}, nil
}

// convertError rewords an error in terms of the flags and marks errors that are not about the input.
func convertError(err error) error {
	var output *convert.OutputError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, convert.ErrExists) && errors.As(err, &output):
		return fmt.Errorf("convert: %s: %w; --force replaces it", output.Path, output.Err)
	case errors.As(err, &output):
		return fmt.Errorf("convert: %s: %w", output.Path, output.Err)
	case errors.Is(err, convert.ErrVerify):
		return &failure{err}
	}
	return err
}

func (r *conversion) take(done *convert.Result) {
	r.Tensors, r.BytesIn, r.BytesOut, r.Files, r.Verified = done.Tensors, done.BytesIn, done.BytesOut, done.Files, done.Verified
	r.Copied = append([]string{}, done.Copied...)
	r.Tied = append([][]string{}, done.Tied...)
	r.Changes = []typeChange{}
	for _, c := range done.Changes {
		r.Changes = append(r.Changes, typeChange{
			From: c.From.String(), To: c.To.String(), Tensors: c.Tensors, Elements: c.Elements, MaxAbs: c.MaxAbs, Relative: c.Relative, At: c.At,
			Overflow: c.Overflow, OverflowAt: c.OverflowAt, Underflow: c.Underflow,
		})
	}
}

func (a *app) printConversion(r *conversion) {
	rows := [][]string{{"input", oneLine(r.Input) + describeFormat(r.Format, r.Why)}}
	files := "1 file"
	if len(r.Files) != 1 {
		files = fmt.Sprintf("%d files", len(r.Files))
	}
	verified := "; read back and verified"
	if !r.Verified {
		verified = "; not read back"
	}
	rows = append(rows, []string{"output", fmt.Sprintf("%s: %d tensors, %s, in %s%s", oneLine(r.Output), r.Tensors, bytesize.Binary(r.BytesOut), files, verified)})
	if len(r.Copied) > 0 {
		rows = append(rows, []string{"copied", oneLine(strings.Join(r.Copied, ", "))})
	}
	for _, c := range r.Changes {
		rounded := "exact"
		if c.MaxAbs > 0 {
			rounded = fmt.Sprintf("rounded by at most %.3g, %.3g of the largest value of a tensor", c.MaxAbs, c.Relative)
		}
		rows = append(rows, []string{"type", fmt.Sprintf("%s to %s: %d tensors, %s", c.From, c.To, c.Tensors, rounded)})
		if c.Underflow > 0 {
			rows = append(rows, []string{"note", fmt.Sprintf("%d of %d numbers were too small for %s and became 0", c.Underflow, c.Elements, c.To)})
		}
		if c.Overflow > 0 {
			rows = append(rows, []string{"warning", fmt.Sprintf("%d of %d numbers are beyond %s and became %s, first in %s", c.Overflow, c.Elements, c.To, beyond(c.To), oneLine(c.OverflowAt))})
		}
	}
	for _, names := range r.Tied {
		rows = append(rows, []string{"tied", oneLine(strings.Join(names, ", ")) + ": " + r.tiedAs()})
	}
	for _, list := range []struct {
		what  string
		names []string
	}{{"dropped", r.Dropped}, {"absent", r.Absent}, {"metadata", r.Metadata}} {
		if len(list.names) > 0 {
			rows = append(rows, []string{list.what, oneLine(strings.Join(list.names, ", "))})
		}
	}
	a.out.table(rows)
}

// tiedAs describes how tensors that share their bytes were written.
func (r *conversion) tiedAs() string {
	if r.DropTied {
		return "written once, the metadata name the others"
	}
	return "written for each name"
}

// beyond describes how a type represents numbers outside its range.
func beyond(dtype string) string {
	if dtype == "F8_E4M3" {
		return "its largest number"
	}
	return "infinite"
}
