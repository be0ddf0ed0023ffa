package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

func (a *app) graph() *cobra.Command {
	c := a.group(&cobra.Command{
		Use:   "graph",
		Short: "Inspect compiled programs",
	})
	c.AddCommand(a.graphDump())
	return c
}

// dumpFlags holds the flags of `graph dump`.
type dumpFlags struct {
	modelFlags
	tokens int
	chain  []int
	json   bool
}

// dump is the output of `graph dump --json`.
type dump struct {
	Backend string `json:"backend"`
	// Launches lists the device's launches in order.
	Launches []string `json:"launches"`
	Arena    int      `json:"arena_bytes"`
	Program  string   `json:"program"`
}

func (a *app) graphDump() *cobra.Command {
	var f dumpFlags
	c := &cobra.Command{
		Use:   "dump (--model DIR [--adapter DIR] | --chain ROWS,IN,OUT,RANK)",
		Short: "Print the compiled program of a model or of an example",
		Long: `Print the compiled program for the logits of a model, with or without an adapter, or for
an adapter written as matrix multiplications and a scale,

  x·Wᵀ + s·((x·Aᵀ)·Bᵀ)

of x [rows, in], W [out, in], A [rank, in] and B [out, rank]. Each line is an operation
with its results, attributes and inputs. $2 is argument 2 of the program, @64 a buffer at
byte 64 of its memory. In the example, the multiplications by W and by B are fused into
Gemm{NT NT·s}: the adapter extends the inner dimension.`,
		Example: `  lorafuse graph dump --chain 8,64,32,8
  lorafuse graph dump --model path/to/model --adapter output/adapter
  lorafuse graph dump --model path/to/model --tokens 512 --backend cuda --json`,
		Args: args(0),
		RunE: func(c *cobra.Command, _ []string) error {
			var d *dump
			var err error
			switch {
			case len(f.chain) > 0 && (f.model != "" || f.adapter != ""):
				return usagef(c.CommandPath(), "--chain and --model are given, expected one of them")
			case len(f.chain) > 0:
				d, err = f.ofChain()
			default:
				d, err = a.dumpModel(c.Context(), &f)
			}
			switch {
			case err != nil:
				return err
			case f.json:
				return a.out.json(d)
			}
			a.out.printf("on %s:\n%s", d.Backend, d.Program)
			return nil
		},
	}
	f.flags(c)
	f.machineFlags(c)
	c.Flags().IntVar(&f.tokens, "tokens", 128, "maximum tokens per run of a model's program")
	c.Flags().IntSliceVar(&f.chain, "chain", nil, "rows, in, out and rank of the example adapter, separated by commas")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// dumped describes a planned program.
func dumped(dev backend.Device, p *ir.Program) *dump {
	d := &dump{Backend: dev.Info().Backend, Arena: p.Arena, Program: p.String()}
	for _, l := range p.Launches {
		d.Launches = append(d.Launches, l.String())
	}
	return d
}

// dumpModel compiles the program for the logits, the scores or the hidden states of a model.
func (a *app) dumpModel(ctx context.Context, f *dumpFlags) (*dump, error) {
	if f.tokens < 1 {
		return nil, fmt.Errorf("graph dump: --tokens: found %d, expected 1 or more", f.tokens)
	}
	f.classifies = true
	s, err := a.open(ctx, &f.modelFlags)
	if err != nil {
		return nil, err
	}
	defer s.close()
	h := host.Open(s.dev, s.model.Model)
	defer h.Close()
	slot, err := h.NewSlot(s.model.State)
	if err != nil {
		return nil, err
	}
	defer slot.Free()
	draft, err := h.Plan(slot, engine.Spec{Bounds: map[string]int{nn.Tokens: f.tokens}, Build: func(b *nn.Builder, p *graph.Program) {
		out := s.model.Build(b)
		switch {
		case out.Head != nil:
			p.Result("logits", out.Logits(b, graph.Tensor{}))
		case out.Scores != nil:
			p.Result("scores", out.Score(b))
		default:
			p.Result("hidden", out.Hidden[len(out.Hidden)-1])
		}
	}})
	if err != nil {
		return nil, err
	}
	return dumped(s.dev, draft.Program), nil
}

// ofChain compiles the program for an adapter given as a chain of matrix multiplications and a scale.
func (f *dumpFlags) ofChain() (*dump, error) {
	if len(f.chain) != 4 {
		return nil, fmt.Errorf("graph dump: --chain: found %d sizes, expected rows, in, out and rank", len(f.chain))
	}
	for i, name := range []string{"rows", "in", "out", "rank"} {
		if n := f.chain[i]; n < 1 || n > 1<<20 {
			return nil, fmt.Errorf("graph dump: --chain: %s is %d, expected 1 to %d", name, n, 1<<20)
		}
	}
	rows, in, out, rank := f.chain[0], f.chain[1], f.chain[2], f.chain[3]
	dev, err := backend.Open(f.backend, backend.Options{Threads: f.threads, Precision: f.precision})
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	g := graph.New()
	param := func(name string, dims ...int) graph.Tensor { return g.Param(name, tensor.F32, ir.ShapeOf(dims...)...) }
	x, w, a, b := param("x", rows, in), param("w", out, in), param("a", rank, in), param("b", out, rank)
	y := x.MatMulT(w).Add(x.MatMulT(a).MatMulT(b).Scale(2))
	p, err := g.Program().Result("y", y).Plan(dev.Supports)
	if err != nil {
		return nil, err
	}
	return dumped(dev, p), nil
}
