package cli

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/diffusion"
	"github.com/lorafuse/lorafuse/model/hub"
)

// transformerFlag adds the flag for the configuration of a transformer in a single file.
func transformerFlag(c *cobra.Command, path *string) {
	c.Flags().StringVar(path, "transformer-config", "", "config.json of diffusers for a transformer in a single file; default the one beside the file, or what shapes tell")
}

// openPipeline opens the pipeline called name, a folder, a name on the hub, or the file of a
// transformer; or nothing but s, where there is no name.
func (a *app) openPipeline(ctx context.Context, command, name string, s diffusion.Single) (*diffusion.Pipeline, error) {
	if s.File == "" {
		if info, err := os.Stat(name); err == nil && !info.IsDir() {
			return diffusion.OpenWith(name, s)
		}
	}
	if s.File == "" && s.Config != "" {
		return nil, errors.New(command + ": --transformer-config goes with a transformer in a single file")
	}
	if name == "" && s.File != "" {
		return diffusion.OpenWith("", s)
	}
	dir, err := a.resolve(ctx, command, name, hub.Options{})
	if err != nil {
		return nil, err
	}
	return diffusion.OpenWith(dir, s)
}
