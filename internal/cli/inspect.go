package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model/hub"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/train"
)

// inspection is what `inspect --json` prints.
type inspection struct {
	Path     string            `json:"path"`
	Kind     string            `json:"kind"` // file, adapter or model
	Model    *modelReport      `json:"model,omitempty"`
	Adapter  *adapterReport    `json:"adapter,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Elements int64             `json:"elements"`
	Bytes    int64             `json:"bytes"`
	Tensors  []tensorInfo      `json:"tensors"`
}

type tensorInfo struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Bytes int    `json:"bytes"`
	File  string `json:"file,omitempty"` // of a sharded model
}

func (a *app) inspect() *cobra.Command {
	var m modelFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect PATH",
		Short: "Show what is in a file, an adapter or a model",
		Long: `Show the tensors of a safetensors file, an adapter folder or a model folder: names,
element types, shapes, sizes and metadata.

Of a model it says which architecture it is, whether it is supported, how many
parameters it has and which tensors it does not use. Of an adapter it says what its
configuration means; with --model every target and every tensor is accounted for,
and the exit status is 1 where they do not fit together. PATH may be owner/name of a
model in the Hugging Face cache or on the hub, too.`,
		Example: `  lorafuse inspect model.safetensors
  lorafuse inspect output/adapter --model path/to/model
  lorafuse inspect path/to/model --json`,
		Args: args(1, "PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			path := args[0]
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				if path, err = a.resolve(c.Context(), c.Name(), path, hub.Options{}); err != nil {
					return err
				}
			}
			m.command = c.Name()
			i, err := a.look(c, path, &m)
			if err != nil {
				return err
			}
			if asJSON {
				err = a.out.json(i)
			} else {
				a.printInspection(i)
			}
			if err == nil && i.Adapter != nil && len(i.Adapter.Problems) > 0 {
				err = differs("inspect: %s does not fit %s: %s", path, m.model, i.Adapter.Problems[0])
			}
			return err
		},
	}
	c.Flags().StringVarP(&m.model, "model", "m", "", "model that the adapter is for: folder, or owner/name[@revision] on the hub")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// look finds out what path is.
func (a *app) look(c *cobra.Command, path string, m *modelFlags) (*inspection, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	i := &inspection{Path: path, Tensors: []tensorInfo{}}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(path, name))
		return err == nil
	}
	if m.model != "" && !(info.IsDir() && has(lora.ConfigFile)) {
		return nil, fmt.Errorf("inspect: --model goes with an adapter's folder, %s has no %s", path, lora.ConfigFile)
	}
	switch {
	case !info.IsDir():
		i.Kind = "file"
		return i, i.addFile(path)
	case has(lora.ConfigFile):
		i.Kind = "adapter"
		return i, a.inspectAdapter(c.Context(), i, m)
	case has("config.json"), has(safetensors.ModelFile), has(safetensors.ModelIndex):
		i.Kind = "model"
		return i, i.inspectModel()
	}
	return nil, fmt.Errorf("inspect: %s is a folder without config.json, %s or %s", path, safetensors.ModelFile, lora.ConfigFile)
}

// addFile lists the tensors of one file.
func (i *inspection) addFile(path string) error {
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return i.add(f, "")
}

// add lists the tensors of an open file; shard is its name in a sharded model.
func (i *inspection) add(f *safetensors.File, shard string) error {
	for k, v := range f.Metadata() {
		if i.Metadata == nil {
			i.Metadata = map[string]string{}
		}
		i.Metadata[k] = v
	}
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
		i.Tensors = append(i.Tensors, tensorInfo{name, v.DType.String(), append([]int{}, v.Shape...), v.Len(), shard})
	}
	return nil
}

func (a *app) printInspection(i *inspection) {
	rows := [][]string{{i.Kind, i.Path}}
	if i.Model != nil {
		rows = append(rows, i.Model.rows()...)
	}
	if i.Adapter != nil {
		rows = append(rows, i.Adapter.rows()...)
	}
	rows = append(rows, []string{"tensors", fmt.Sprintf("%d with %d elements, %s", len(i.Tensors), i.Elements, train.Size(i.Bytes))})
	for _, k := range slices.Sorted(maps.Keys(i.Metadata)) {
		rows = append(rows, []string{"metadata", fmt.Sprintf("%s = %s", oneLine(k), oneLine(i.Metadata[k]))})
	}
	a.out.table(rows)
	if i.Adapter != nil {
		a.printTargets(i.Adapter)
	}
	if len(i.Tensors) == 0 {
		return
	}
	table := [][]string{{"", "TENSOR", "DTYPE", "SHAPE", "SIZE"}}
	if i.Tensors[0].File != "" {
		table[0] = append(table[0], "FILE")
	}
	for _, t := range i.Tensors {
		row := []string{"", oneLine(t.Name), t.DType, fmt.Sprint(t.Shape), train.Size(int64(t.Bytes))}
		if t.File != "" {
			row = append(row, t.File)
		}
		table = append(table, row)
	}
	a.out.table(table)
}
