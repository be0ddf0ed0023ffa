package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/inspect"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
)

// statistics holds the statistics of one tensor. Unavailable numbers are null.
type statistics struct {
	Min       json.Number `json:"min,omitempty"`
	Max       json.Number `json:"max,omitempty"`
	Mean      *float64    `json:"mean"`
	Std       *float64    `json:"std"`
	Zero      int64       `json:"zero"`
	ZeroShare float64     `json:"zero_share"`
	NaN       int64       `json:"nan"`
	NaNShare  float64     `json:"nan_share"`
	Inf       int64       `json:"inf"`
	InfShare  float64     `json:"inf_share"`
	Histogram *histogram  `json:"histogram,omitempty"`
}

// histogram has one edge more than counts.
type histogram struct {
	Edges  []json.Number `json:"edges"`
	Counts []int64       `json:"counts"`
}

// verification is the result of reading all tensors back.
type verification struct {
	Files    []fileDigest `json:"files"`
	Problems []string     `json:"problems"`
	Warnings []string     `json:"warnings"`
}

type fileDigest struct {
	Name     string `json:"name"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	Expected string `json:"compared_with,omitempty"`
}

// lookInside reads the values that --stats and --verify ask for, and keeps the
// tensors that --tensor asks for.
func (a *app) lookInside(ctx context.Context, i *inspection, set *weights.Set, f *inspectFlags) error {
	if f.tensor != "" {
		g := newGlob(f.tensor)
		if err := g.check("tensor", set.Names()); err != nil {
			return fmt.Errorf("inspect: %w", err)
		}
		defer i.keep(g)
		if f.stats && !f.verify {
			return a.scan(ctx, i, set, g.matches)
		}
	}
	switch {
	case f.verify:
		return a.check(ctx, i, set, f.stats)
	case f.stats:
		return a.scan(ctx, i, set, func(string) bool { return true })
	}
	return nil
}

// keep removes tensors whose names do not match.
func (i *inspection) keep(g glob) {
	i.Tensors = slices.DeleteFunc(i.Tensors, func(t tensorInfo) bool { return !g.matches(t.Name) })
	i.Elements, i.Bytes = 0, 0
	for _, t := range i.Tensors {
		n := int64(1)
		for _, d := range t.Shape {
			n *= int64(d)
		}
		i.Elements += n
		i.Bytes += int64(t.Bytes)
	}
}

// scan adds statistics of the tensors that are asked for.
func (a *app) scan(ctx context.Context, i *inspection, set *weights.Set, wanted func(name string) bool) error {
	var views []*safetensors.View
	var infos []*tensorInfo
	for n := range i.Tensors {
		t := &i.Tensors[n]
		if !wanted(t.Name) {
			continue
		}
		v, err := set.Lookup(t.Name)
		if err != nil {
			return err
		}
		views, infos = append(views, v), append(infos, t)
	}
	report := a.loading()
	values, err := inspect.Scan(ctx, views, inspect.Options{Progress: func(done, total int64) { report("reading", done, total) }})
	a.close()
	if err != nil {
		return err
	}
	for n, t := range infos {
		if values[n].Err != nil {
			return values[n].Err
		}
		t.Stats = newStatistics(&values[n])
	}
	return nil
}

// check verifies the whole set.
func (a *app) check(ctx context.Context, i *inspection, set *weights.Set, stats bool) error {
	report := a.loading()
	r, err := inspect.Check(ctx, set, inspect.Options{Progress: func(done, total int64) { report("verifying", done, total) }})
	a.close()
	if err != nil {
		return err
	}
	i.Verify = &verification{Files: []fileDigest{}, Problems: append([]string{}, r.Problems...), Warnings: append([]string{}, r.Warnings...)}
	for _, d := range r.Files {
		i.Verify.Files = append(i.Verify.Files, fileDigest(d))
	}
	for n := range i.Tensors {
		t, v := &i.Tensors[n], &r.Values[n]
		if v.Err == nil {
			t.CRC32C = fmt.Sprintf("%08x", v.CRC32C)
		}
		if stats {
			t.Stats = newStatistics(v)
		}
	}
	return nil
}

// newStatistics returns nil for element types without known values.
func newStatistics(v *inspect.Values) *statistics {
	if v.Elements > 0 && math.IsNaN(v.Mean) && v.NaN+v.Inf == 0 {
		return nil
	}
	share := func(n int64) float64 { return float64(n) / float64(max(v.Elements, 1)) }
	known := func(x float64) *float64 {
		if math.IsNaN(x) {
			return nil
		}
		return &x
	}
	s := &statistics{
		Min: v.Min, Max: v.Max, Mean: known(v.Mean), Std: known(v.Std),
		Zero: v.Zero, ZeroShare: share(v.Zero), NaN: v.NaN, NaNShare: share(v.NaN), Inf: v.Inf, InfShare: share(v.Inf),
	}
	if v.Histogram != nil {
		s.Histogram = &histogram{v.Histogram.Edges, v.Histogram.Counts}
	}
	return s
}

// columns returns the statistics in a line of a table, dashes if s is nil.
func (s *statistics) columns() []string {
	if s == nil {
		return slices.Repeat([]string{"-"}, 8)
	}
	short := func(n json.Number) string {
		x, err := n.Float64()
		if err != nil {
			return "-"
		}
		if _, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
			return n.String() // a whole number
		}
		return fmt.Sprintf("%.4g", x)
	}
	known := func(x *float64) string {
		if x == nil {
			return "-"
		}
		return fmt.Sprintf("%.4g", *x)
	}
	return []string{
		short(s.Min), short(s.Max), known(s.Mean), known(s.Std),
		percent(s.Zero, s.ZeroShare), percent(s.NaN, s.NaNShare), percent(s.Inf, s.InfShare), s.Histogram.sparkline(),
	}
}

// percent formats a share. Shares that would round to 0 are printed as counts.
func percent(n int64, share float64) string {
	switch {
	case n == 0:
		return "0"
	case share < 0.0005:
		return fmt.Sprintf("%d of them", n)
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}

// sparkline draws a bar for each count. A nonzero count is always visible, however small it is next to the others.
func (h *histogram) sparkline() string {
	if h == nil {
		return "-"
	}
	bars := []rune(" ▁▂▃▄▅▆▇█")
	most := slices.Max(h.Counts)
	var b strings.Builder
	for _, n := range h.Counts {
		height := int(math.Ceil(float64(n) / float64(most) * float64(len(bars)-1)))
		b.WriteRune(bars[height])
	}
	return b.String()
}

func (v *verification) rows() [][]string {
	var rows [][]string
	for _, f := range v.Files {
		same := ""
		if f.Expected != "" {
			same = ", compared with " + f.Expected
		}
		rows = append(rows, []string{"sha256", fmt.Sprintf("%s  %s (%s%s)", f.SHA256, oneLine(f.Name), bytesize.Binary(f.Bytes), same)})
	}
	for _, w := range v.Warnings {
		rows = append(rows, []string{"warning", oneLine(w)})
	}
	for _, p := range v.Problems {
		rows = append(rows, []string{"problem", oneLine(p)})
	}
	if len(v.Problems) == 0 {
		rows = append(rows, []string{"verified", "every byte was read, no problems"})
	}
	return rows
}
