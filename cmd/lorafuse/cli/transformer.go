package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/model/hub"
)

// transformerFlag adds the flag for the configuration of a transformer in a single file.
func transformerFlag(c *cobra.Command, path *string) {
	c.Flags().StringVar(path, "transformer-config", "", "diffusers config.json of a single-file transformer (default: the one next to the file, or inferred from shapes)")
}

// openPipeline opens the pipeline called name: a folder, a name on the Hub, or the file of a transformer. Without a
// name it opens only s. Files on the Hub are downloaded when they are read.
func (a *app) openPipeline(ctx context.Context, command, name string, s diffusion.Single) (*diffusion.Pipeline, error) {
	if name == "" && s.File == "" {
		return nil, noModel("lorafuse " + command)
	}
	p, err := diffusion.Find(ctx, name, s, a.hubOptions())
	if err == nil && s.Config != "" && !p.IsSingle() {
		return nil, errors.New(command + ": --transformer-config goes with a transformer in a single file")
	}
	if err == nil {
		p.Notify(func(text string) { a.note("note     %s", text) })
	}
	return p, err
}

// hubOptions returns options that show downloads and their problems.
func (a *app) hubOptions() hub.Options {
	return hub.Options{
		Progress: func(file string, done, total int64) { a.progress().Bytes(file, done, total) },
		Warn:     func(err error) { a.note("note     %v", err) },
	}
}
