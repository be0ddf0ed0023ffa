package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/train/config"
)

func (a *app) config() *cobra.Command {
	return &cobra.Command{
		Use:   "config [KEY]",
		Short: "Explain the keys of a training configuration",
		Long: `Print the reference of the YAML file that lorafuse train reads, in Markdown, or
the part about one key or section.`,
		Example: `  lorafuse config
  lorafuse config adapter
  lorafuse config data.max_length`,
		Args: args(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				a.out.printf("%s", config.Reference())
				return nil
			}
			return a.explainKey(args[0])
		},
	}
}

// explainKey prints a key, or all keys of a section.
func (a *app) explainKey(path string) error {
	var names []string
	found := false
	for _, k := range config.Keys() {
		names = append(names, k.Path)
		if k.Path != path && !strings.HasPrefix(k.Path, path+".") {
			continue
		}
		found = true
		takes := k.Type
		switch {
		case len(k.Words) > 0:
			takes = strings.Join(k.Words, " | ")
		case k.Range != "":
			takes += " in " + k.Range
		}
		if k.Default != "" {
			takes += ", default " + k.Default
		}
		if k.Required {
			takes += ", required"
		}
		a.out.printf("%s (%s)\n  %s\n", k.Path, takes, k.Doc)
	}
	if !found {
		return fmt.Errorf("config: no key %q%s", path, suggest.DidYouMean(path, names))
	}
	return nil
}
