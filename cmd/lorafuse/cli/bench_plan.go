package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/dev/bench/plan"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
)

func (a *app) benchPlan() *cobra.Command {
	var f reportFlags
	var o plan.Options
	var dir, size string
	c := &cobra.Command{
		Use:   "plan",
		Short: "Count what a model costs on GPUs, without one",
		Long: `Plan the programs of a model for CUDA (in bf16) and Metal (in f32), without a GPU:
decoding 1, 32 and 64 served sequences, decoding with and without an adapter, training
and optimizer steps; for a diffusion transformer, a training step of an image of 1024²
pixels; for an autoencoder, encoding and decoding one.

The output has kernel launches, the bytes that kernels read and write, and the memory
for values of the program (arena) and within operations (scratch). Decomposed operations
have no kernel and run as several others. Times are derived, not measured: no operation
can be faster than its bytes at the bandwidth of the card, or its multiplications at the
peak rate.`,
		Example: `  lorafuse bench plan --size llama-8b
  lorafuse bench plan --model path/to/model --tokens 4096 --json`,
		Args: args(0),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if dir != "" {
				if dir, err = a.resolve(c.Context(), "bench plan", dir, hub.Options{}); err != nil {
					return err
				}
			} else {
				shape, err := checkpoint.ByName(size)
				if err != nil {
					return fmt.Errorf("bench plan: --size: %w", err)
				}
				if dir, err = os.MkdirTemp("", "lorafuse-bench-"); err != nil {
					return &failure{fmt.Errorf("bench plan: %w", err)}
				}
				defer os.RemoveAll(dir)
				if err := shape.WriteEmpty(dir); err != nil {
					return &failure{fmt.Errorf("bench plan: %w", err)}
				}
			}
			costs, err := a.plan(dir, o)
			a.close()
			switch {
			case err != nil:
				return fmt.Errorf("bench %w", err)
			case f.json:
				return a.out.json(costs)
			case f.markdown:
				a.out.printf("%s", plan.Markdown(costs))
			default:
				a.out.table(plan.Table(costs))
			}
			return nil
		},
	}
	f.flags(c)
	c.Flags().StringVar(&dir, "model", "", "model folder, or owner/name on the hub")
	c.Flags().StringVar(&size, "size", "llama-8b", sizesUsage)
	c.Flags().IntVar(&o.Tokens, "tokens", 8192, "tokens of a training step")
	c.Flags().IntVar(&o.Context, "context", 1024, "tokens of each served sequence")
	c.Flags().IntVar(&o.Rank, "rank", 16, "adapter rank")
	c.MarkFlagsMutuallyExclusive("model", "size")
	return c
}

// plan returns the costs of the programs of the model in dir.
func (a *app) plan(dir string, o plan.Options) (costs []plan.Cost, err error) {
	m, err := model.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	programs, err := plan.List(m, o)
	if err != nil {
		return nil, err
	}
	for i, p := range programs {
		a.progress().Steps("planning", int64(i), int64(len(programs)), p.Name)
		for _, d := range plan.Devices() {
			c, err := d.Count(p)
			if err != nil {
				return nil, err
			}
			costs = append(costs, c)
		}
	}
	return costs, nil
}
