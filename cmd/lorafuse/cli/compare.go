package cli

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/generate"
)

// comparison is the output of `compare --json`.
type comparison struct {
	MaxAbs    float64 `json:"max_abs_difference"`
	MaxLogit  float64 `json:"max_abs_logit"` // of the golden file
	Relative  float64 `json:"relative_difference"`
	Row       int     `json:"row"`
	Position  int     `json:"position"`
	Token     int     `json:"token"`
	Logit     float64 `json:"logit"`
	Golden    float64 `json:"golden_logit"`
	Tolerance float64 `json:"tolerance"`
	Equal     bool    `json:"within_tolerance"`
	// Load describes how the weights were uploaded to a device with its own memory.
	Load *backend.LoadStats `json:"load,omitempty"`
}

func (a *app) compare() *cobra.Command {
	var m modelFlags
	var golden string
	var tolerance float64
	var asJSON bool
	c := &cobra.Command{
		Use:   "compare --model DIR [--adapter DIR] --golden FILE",
		Short: "Compare logits with a PyTorch reference",
		Long: `Compute the logits of a model, with or without an adapter, and compare them with recorded
ones: a safetensors file with input_ids, [rows, length] integers, and logits, [rows,
length, vocabulary] floats. scripts/dump_golden.py writes such a file.

The output has the largest absolute difference, its position, and its ratio to the
largest absolute logit of the file. If that ratio exceeds --tolerance, the exit status
is 1.`,
		Example: `  python scripts/dump_golden.py --model path/to/model --out golden.safetensors
  lorafuse compare --model path/to/model --golden golden.safetensors
  lorafuse compare --model path/to/model --adapter output/adapter --golden golden.safetensors --tolerance 1e-4 --json`,
		Args: args(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if golden == "" {
				return usagef(c.CommandPath(), "--golden is missing: a safetensors file with input_ids and logits")
			}
			if !(tolerance >= 0) {
				return fmt.Errorf("compare: --tolerance: found %v, expected a number of 0 or more", tolerance)
			}
			r, err := a.runCompare(c.Context(), &m, golden)
			if err != nil {
				return err
			}
			r.Tolerance, r.Equal = tolerance, r.Relative <= tolerance
			return a.printComparison(r, asJSON)
		},
	}
	m.flags(c)
	m.machineFlags(c)
	m.quantizeFlag(c)
	c.Flags().StringVar(&golden, "golden", "", "safetensors file with input_ids and logits")
	c.Flags().Float64Var(&tolerance, "tolerance", 1e-5, "largest allowed difference, relative to the largest absolute logit")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) runCompare(ctx context.Context, m *modelFlags, path string) (*comparison, error) {
	g, err := openGolden(path)
	if err != nil {
		return nil, err
	}
	defer g.close()
	s, err := a.open(ctx, m)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if vocab := s.model.Config.VocabSize; g.vocab != vocab {
		return nil, fmt.Errorf("compare: %s: logits of %d tokens, the model has %d", path, g.vocab, vocab)
	}
	scorer, err := generate.NewScorer(s.dev, s.model.Model, s.model.State, g.length)
	if err != nil {
		return nil, err
	}
	defer scorer.Close()
	r, began := &comparison{}, time.Now()
	for row, ids := range g.ids {
		logits, err := scorer.Logits(ctx, [][]int32{ids})
		if err != nil {
			return nil, underWay(fmt.Errorf("compare: %s: row %d: %w", path, row, err))
		}
		want, err := g.logits(row)
		if err != nil {
			return nil, underWay(err)
		}
		r.add(row, g.vocab, logits, want)
		a.steps("comparing", row+1, len(g.ids), began)
	}
	a.close()
	r.Load = a.loaded(s.dev)
	r.Relative = r.MaxAbs / r.MaxLogit
	if r.MaxAbs == 0 {
		r.Relative = 0
	}
	return r, nil
}

// add adds one row of logits. A NaN on only one side counts as an infinite difference.
func (r *comparison) add(row, vocab int, got, want []float32) {
	for i := range want {
		x, y := float64(got[i]), float64(want[i])
		if v := math.Abs(y); v > r.MaxLogit && !math.IsInf(v, 1) {
			r.MaxLogit = v
		}
		d := math.Abs(x - y)
		switch {
		case x == y || math.IsNaN(x) && math.IsNaN(y):
			continue
		case math.IsNaN(d):
			d = math.Inf(1)
		}
		if d > r.MaxAbs {
			r.MaxAbs, r.Row, r.Position, r.Token, r.Logit, r.Golden = d, row, i/vocab, i%vocab, x, y
		}
	}
}

func (a *app) printComparison(r *comparison, asJSON bool) error {
	var err error
	if asJSON {
		err = a.out.json(r.printable())
	} else {
		a.out.printf("largest difference  %s\n", r)
		a.out.printf("where               row %d, position %d, token %d: %v here, %v in the file\n", r.Row, r.Position, r.Token, r.Logit, r.Golden)
	}
	if err == nil && !r.Equal {
		by := fmt.Sprintf("%.3g of the largest one", r.Relative)
		if !number(r.Relative).finite() {
			by = r.String()
		}
		err = differs("compare: the logits differ by %s, more than the tolerance of %g", by, r.Tolerance)
	}
	return err
}

// String formats the largest difference.
func (r *comparison) String() string {
	switch {
	case math.IsInf(r.MaxAbs, 0):
		return "what is not finite on one side alone"
	case math.IsInf(r.Relative, 0):
		return fmt.Sprintf("%.3g absolute, none relative: all logits of the file are 0", r.MaxAbs)
	}
	return fmt.Sprintf("%.3g absolute, %.3g of the largest logit (%.6g)", r.MaxAbs, r.Relative, r.MaxLogit)
}

// printable returns a form that JSON can represent.
func (r *comparison) printable() any {
	return struct {
		*comparison
		MaxAbs   number `json:"max_abs_difference"`
		Relative number `json:"relative_difference"`
		Logit    number `json:"logit"`
		Golden   number `json:"golden_logit"`
	}{r, number(r.MaxAbs), number(r.Relative), number(r.Logit), number(r.Golden)}
}
