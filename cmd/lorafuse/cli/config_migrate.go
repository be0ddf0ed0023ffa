package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/train/config/migrate"
)

// migrated is the output of `config migrate --json`.
type migrated struct {
	Source  string         `json:"source"`
	YAML    string         `json:"yaml"`
	Dropped []migrate.Note `json:"dropped"`
	Todo    []migrate.Note `json:"todo"`
	Unused  []string       `json:"unused"`
}

func (a *app) configMigrate() *cobra.Command {
	var asJSON bool
	var output string
	c := &cobra.Command{
		Use:   "migrate FILE",
		Short: "Convert the configuration of another trainer",
		Long: `Convert a configuration of axolotl, LLaMA-Factory, mlx-lm, FlyMyAI's trainer,
ai-toolkit, kohya's sd-scripts (TOML) or SimpleTuner (JSON) to the YAML of lorafuse
train. The keys of the file decide which it is. Defaults of the trainer that differ are
written out; what has no equivalent, and what is left to do, is listed, and noted at the
head of the output.`,
		Example: `  lorafuse config migrate qlora.yml -o train.yaml
  lorafuse config migrate lora.toml`,
		Args: args(1, "the FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			raw, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("config migrate: %w", err)
			}
			r, err := migrate.Convert(args[0], raw)
			if err != nil {
				return fmt.Errorf("config migrate: %w", err)
			}
			if output != "" {
				if _, err := os.Stat(output); err == nil {
					return fmt.Errorf("config migrate: %s exists, expected a new file", output)
				}
				if err := fsatomic.WriteFile(output, r.YAML); err != nil {
					return err
				}
			}
			if asJSON {
				return a.out.json(migrated{r.Source, string(r.YAML), r.Dropped, r.Todo, r.Unused})
			}
			a.note("config   of %s", r.Source)
			for _, n := range r.Dropped {
				a.note("dropped  %s: %s", n.Key, n.Why)
			}
			if len(r.Unused) > 0 {
				a.note("note     without effect here: %s", strings.Join(r.Unused, ", "))
			}
			for _, n := range r.Todo {
				a.note("to do    %s: %s", n.Key, n.Why)
			}
			if output == "" {
				a.out.printf("%s", r.YAML)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "write to this new file instead of standard output")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
