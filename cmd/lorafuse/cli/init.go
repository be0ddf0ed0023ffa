package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/train/config"
)

// written is the output of init --json.
type written struct {
	File string `json:"file"`
}

func (a *app) init() *cobra.Command {
	var f startFlags
	var sets []string
	var force, asJSON bool
	c := &cobra.Command{
		Use:   "init [FILE.yaml] [--model M] [--data D] [--set key=value]...",
		Short: "Write a training configuration with comments",
		Long: `Write the configuration of a training run with all keys of its task, each with its
meaning. Keys at their defaults are comments. FILE.yaml is train.yaml by default; - is
standard output.

With --model and --data the settings are those that lorafuse train would choose.`,
		Example: `  lorafuse init --model Qwen/Qwen2.5-0.5B-Instruct --data train.csv
  lorafuse init - --task preference`,
		Args: args(1),
		RunE: func(c *cobra.Command, args []string) error {
			file := settingsFile
			if len(args) == 1 {
				file = args[0]
			}
			if _, err := os.Lstat(file); file != "-" && !force && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("init: %s exists; --force replaces it", file)
			}
			var cfg *config.Config
			var err error
			all := append(f.assignments(), sets...)
			if f.check(c.CommandPath(), sets) == nil {
				cfg, _, err = a.chooseSettings(c.Context(), &f, all)
			} else {
				cfg = config.Default()
				for _, s := range all {
					if err == nil {
						err = f.wording(cfg.Set(s))
					}
				}
			}
			if err != nil {
				return err
			}
			text, err := cfg.Commented()
			if err != nil {
				return err
			}
			if file == "-" {
				_, err := a.out.Write(text)
				return err
			}
			if err := fsatomic.WriteFile(file, text); err != nil {
				return &failure{err}
			}
			if asJSON {
				return a.out.json(written{file})
			}
			a.out.printf("wrote    %s; edit it, then: lorafuse train %s\n", file, shellWord(file))
			return nil
		},
	}
	f.flags(c)
	c.Flags().StringArrayVar(&sets, "set", nil, "set a key: key=value (repeatable)")
	c.Flags().BoolVar(&asJSON, "json", false, "print the name of the file as JSON")
	c.Flags().BoolVar(&force, "force", false, "replace an existing file")
	return c
}
