package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/model/hub"
)

func (a *app) hub() *cobra.Command {
	c := a.group(&cobra.Command{
		Use:   "hub",
		Short: "Download models from the Hugging Face Hub, and upload adapters and models to it",
	})
	c.AddCommand(a.hubDownload(), a.hubPush())
	return c
}

// download is the output of `hub download --json`.
type download struct {
	Model  string `json:"model"`
	Folder string `json:"folder"`
}

func (a *app) hubDownload() *cobra.Command {
	var o hub.Options
	var asJSON bool
	c := &cobra.Command{
		Use:   "download NAME",
		Short: "Download a model and print its folder",
		Long: `Download a model, owner/name[@revision], into the cache that all Hugging Face libraries
share, and print its folder. All parts of a diffusers pipeline are downloaded; draw, data
cache and train download the parts that they need automatically. Existing files are
not downloaded again, and interrupted downloads resume.

HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH and HF_HUB_OFFLINE
are honored.`,
		Example: `  lorafuse hub download Qwen/Qwen2.5-0.5B
  lorafuse tokenize --model "$(lorafuse hub download --no-weights Qwen/Qwen2.5-0.5B)"`,
		Args: args(1, "the model's NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := a.resolve(c.Context(), "hub download", args[0], o)
			if errors.Is(err, hub.ErrPipeline) {
				dir, err = a.downloadPipeline(c.Context(), args[0], o)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return a.out.json(download{args[0], dir})
			}
			a.out.printf("%s\n", dir)
			return nil
		},
	}
	c.Flags().BoolVar(&o.WithoutWeights, "no-weights", false, "download only the configuration, tokenizer and chat template")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&o.Offline, "offline", false, "use only the cache")
	return c
}

// downloadPipeline downloads all parts of a pipeline.
func (a *app) downloadPipeline(ctx context.Context, name string, o hub.Options) (string, error) {
	shown := a.hubOptions()
	o.Progress, o.Warn = shown.Progress, shown.Warn
	defer a.close()
	files, err := hub.Open(ctx, name, o)
	if err != nil {
		return "", err
	}
	return files.FetchAll(!o.WithoutWeights)
}
