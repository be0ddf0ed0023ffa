package cli

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/inspect"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// difference is the output of `diff --json`.
type difference struct {
	Equal     bool           `json:"equal"` // within the tolerance
	Tolerance float64        `json:"tolerance"`
	Compared  int            `json:"compared"` // tensors that both have
	OnlyA     []string       `json:"only_in_a"`
	OnlyB     []string       `json:"only_in_b"`
	Settings  []settingDiff  `json:"settings,omitempty"` // of two adapters
	Tensors   []*tensorDiff  `json:"different"`
	Largest   *tensorExtreme `json:"largest,omitempty"`
}

type tensorExtreme struct {
	MaxAbs   number `json:"max_abs"`
	Relative number `json:"relative"`
}

func (a *app) diff() *cobra.Command {
	var tolerance float64
	var asJSON bool
	c := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two checkpoints or adapters tensor by tensor",
		Long: `Compare two files, adapter folders or model folders, sharded or not: safetensors or
torch.save files. For each tensor that differs, the output has the largest absolute
difference, its position, and its ratio to the largest absolute value of the tensor in
A. Tensors that only one side has are listed. For two adapters, the settings that affect
their results are compared too.

Equal values in different element types are equal, and NaN equals NaN. If anything
differs by more than --tolerance, the exit status is 1. The relative difference is
undefined if A is all zeros, and both differences if only one side is NaN or infinite;
these exceed any tolerance and are null in JSON.`,
		Example: `  lorafuse diff a.safetensors b.safetensors
  lorafuse diff pytorch_model.bin model.safetensors
  lorafuse diff output/adapter other/adapter --tolerance 1e-4
  lorafuse diff path/to/model merged --json`,
		Args: args(2, "A", "B"),
		RunE: func(c *cobra.Command, args []string) error {
			if !(tolerance >= 0 && tolerance <= math.MaxFloat64) {
				return fmt.Errorf("diff: --tolerance: found %v, expected a number of 0 or more", tolerance)
			}
			d, err := a.runDiff(c.Context(), args[0], args[1], tolerance)
			if err != nil {
				return err
			}
			if asJSON {
				err = a.out.json(d)
			} else {
				a.printDifference(d, args[0], args[1])
			}
			if err == nil && !d.Equal {
				err = differs("diff: %s and %s differ: %s", args[0], args[1], d.summary())
			}
			return err
		},
	}
	c.Flags().Float64Var(&tolerance, "tolerance", 0, "largest relative difference of tensors that count as equal")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) runDiff(ctx context.Context, pathA, pathB string, tolerance float64) (*difference, error) {
	x, err := a.openWeights(ctx, pathA)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	y, err := a.openWeights(ctx, pathB)
	if err != nil {
		return nil, err
	}
	defer y.Close()
	d := &difference{Tolerance: tolerance, OnlyA: []string{}, OnlyB: []string{}, Tensors: []*tensorDiff{}}
	if d.Settings, err = diffSettings(pathA, pathB); err != nil {
		return nil, err
	}
	pairs, diffs, err := d.pair(x, y)
	if err != nil {
		return nil, err
	}
	report := a.loading()
	found, err := inspect.Compare(ctx, pairs, inspect.Options{Progress: func(done, total int64) { report("comparing", done, total) }})
	a.close()
	if err != nil {
		return nil, err
	}
	largest := tensorExtreme{}
	for i, f := range found {
		t := diffs[i]
		t.MaxAbs, t.Relative, t.At, t.A, t.B, t.Differ = number(f.MaxAbs), number(f.Relative), f.At, f.A, f.B, f.Differ
		largest.MaxAbs = max(largest.MaxAbs, t.MaxAbs)
		largest.Relative = max(largest.Relative, t.Relative)
		if t.beyond(tolerance) {
			d.Tensors = append(d.Tensors, t)
		}
	}
	slices.SortFunc(d.Tensors, func(a, b *tensorDiff) int { return strings.Compare(a.Name, b.Name) })
	if d.Compared > 0 {
		d.Largest = &largest
	}
	d.Equal = len(d.OnlyA)+len(d.OnlyB)+len(d.Tensors)+len(d.Settings) == 0
	return d, nil
}

// pair finds the tensors to compare. It records tensors that only one side has, and tensors whose shapes or types
// differ.
func (d *difference) pair(x, y *weights.Set) (pairs []inspect.Pair, diffs []*tensorDiff, err error) {
	names := slices.Concat(x.Names(), y.Names())
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		switch {
		case !y.Has(name):
			d.OnlyA = append(d.OnlyA, name)
			continue
		case !x.Has(name):
			d.OnlyB = append(d.OnlyB, name)
			continue
		}
		v, err := x.Lookup(name)
		if err != nil {
			return nil, nil, err
		}
		w, err := y.Lookup(name)
		if err != nil {
			return nil, nil, err
		}
		d.Compared++
		t := &tensorDiff{Name: name, DTypes: [2]string{v.DType.String(), w.DType.String()}}
		switch {
		case !slices.Equal(v.Shape, w.Shape):
			t.Shapes = [][]int{append([]int{}, v.Shape...), append([]int{}, w.Shape...)}
			d.Tensors = append(d.Tensors, t)
		case !inspect.Comparable(v.DType, w.DType):
			t.Incomparable = true
			d.Tensors = append(d.Tensors, t)
		default:
			pairs, diffs = append(pairs, inspect.Pair{A: v, B: w}), append(diffs, t)
		}
	}
	return pairs, diffs, nil
}

func (d *difference) summary() string {
	text := fmt.Sprintf("%d of %d tensors", len(d.Tensors), d.Compared)
	if n := len(d.OnlyA) + len(d.OnlyB); n > 0 {
		text += fmt.Sprintf(", %d in one of them alone", n)
	}
	if n := len(d.Settings); n > 0 {
		text += fmt.Sprintf(", %d settings", n)
	}
	return text
}

func (a *app) printDifference(d *difference, pathA, pathB string) {
	for _, s := range d.Settings {
		a.out.printf("setting %s: %s and %s\n", s.Key, s.A, s.B)
	}
	for _, n := range d.OnlyA {
		a.out.printf("only in %s: %s\n", pathA, oneLine(n))
	}
	for _, n := range d.OnlyB {
		a.out.printf("only in %s: %s\n", pathB, oneLine(n))
	}
	for _, t := range d.Tensors {
		a.out.printf("%s\n", t)
	}
	if d.Equal && d.Largest != nil {
		a.out.printf("%d tensors are equal", d.Compared)
		if d.Largest.MaxAbs > 0 {
			a.out.printf(" within the tolerance of %g: at most %.3g absolute, %.3g relative", d.Tolerance, d.Largest.MaxAbs, d.Largest.Relative)
		}
		a.out.printf("\n")
	}
}

// tensorDiff describes how one tensor differs.
type tensorDiff struct {
	Name   string    `json:"name"`
	Shapes [][]int   `json:"shapes,omitempty"` // set if they differ; nothing else is compared then
	DTypes [2]string `json:"dtypes"`
	// MaxAbs is the largest |a-b|, or infinite if only one of the two is NaN or infinite. Relative is MaxAbs divided
	// by the largest |a|, or infinite if that is 0. Infinite values are null in JSON.
	MaxAbs   number `json:"max_abs"`
	Relative number `json:"relative"`
	At       []int  `json:"at,omitempty"`
	A        string `json:"a,omitempty"` // the values there
	B        string `json:"b,omitempty"`
	Differ   int64  `json:"elements"` // that differ
	// Incomparable reports that a type is not ordered, such as complex numbers. Nothing else is compared then.
	Incomparable bool `json:"incomparable,omitempty"`
}

func (t *tensorDiff) beyond(tolerance float64) bool {
	return t.Differ > 0 && !(float64(t.Relative) <= tolerance)
}

// String formats the difference in one line.
func (t *tensorDiff) String() string {
	name := oneLine(t.Name)
	if t.Shapes != nil {
		return fmt.Sprintf("%s: shapes %v and %v", name, t.Shapes[0], t.Shapes[1])
	}
	if t.Incomparable {
		return fmt.Sprintf("%s: types %s and %s", name, t.DTypes[0], t.DTypes[1])
	}
	types := ""
	if t.DTypes[0] != t.DTypes[1] {
		types = fmt.Sprintf(" (%s and %s)", t.DTypes[0], t.DTypes[1])
	}
	most := fmt.Sprintf("max |a-b| %.3g, relative %.3g", t.MaxAbs, t.Relative)
	switch {
	case !t.MaxAbs.finite():
		most = "|a-b| is not finite"
	case !t.Relative.finite():
		most = fmt.Sprintf("max |a-b| %.3g, none relative: a is 0 wherever it is finite", t.MaxAbs)
	}
	return fmt.Sprintf("%s%s: %s, at %v: %s and %s, %d elements differ", name, types, most, t.At, t.A, t.B, t.Differ)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
