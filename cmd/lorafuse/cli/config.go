package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/train/config"
)

func (a *app) config() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "config [KEY]",
		Short: "Describe the keys of a training configuration",
		Long: `Print the reference of the YAML file that lorafuse train reads, in Markdown, or
the part about one key or section.`,
		Example: `  lorafuse config
  lorafuse config adapter
  lorafuse config data.max_length`,
		Args: args(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !asJSON {
				a.out.printf("%s", config.Reference())
				return nil
			}
			keys := config.Keys()
			if len(args) == 1 {
				var err error
				if keys, err = findKeys(args[0]); err != nil {
					return err
				}
			}
			if asJSON {
				return a.out.json(describeKeys(keys))
			}
			a.explainKeys(keys)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(a.configMigrate())
	return c
}

// configKey is a key in the output of `config --json`.
type configKey struct {
	Path     string   `json:"path"`
	Type     string   `json:"type"`
	Choices  []string `json:"choices,omitempty"`
	Range    string   `json:"range,omitempty"`
	Default  string   `json:"default"` // as in YAML; empty if there is no default
	Required bool     `json:"required"`
	Doc      string   `json:"doc"`
}

func describeKeys(keys []config.Key) []configKey {
	all := make([]configKey, len(keys))
	for i, k := range keys {
		all[i] = configKey{k.Path, k.Type, k.Words, k.Range, k.Default, k.Required, k.Doc}
	}
	return all
}

// findKeys returns a key, or all keys of a section.
func findKeys(path string) ([]config.Key, error) {
	var found []config.Key
	var names []string
	for _, k := range config.Keys() {
		names = append(names, k.Path)
		if k.Path == path || strings.HasPrefix(k.Path, path+".") {
			found = append(found, k)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("config: no key %q%s", path, suggest.DidYouMean(path, names))
	}
	return found, nil
}

// explainKeys prints the values and the meaning of keys.
func (a *app) explainKeys(keys []config.Key) {
	for _, k := range keys {
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
}
