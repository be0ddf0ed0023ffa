package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/quickstart"
	"github.com/lorafuse/lorafuse/train/config"
)

// startFlags are flags that set keys of a training run.
type startFlags struct {
	data, eval []string
	values     map[string]*string // by flag
}

// keyFlags are the flags of startFlags that take a single value, and their keys.
var keyFlags = []struct{ flag, short, key, usage string }{
	{"model", "m", "model", "model to fine-tune: a folder, or owner/name[@revision] on the Hub"},
	{"output", "o", "output_dir", "folder of the adapter (default output)"},
	{"task", "", "task", "training task (default: by the columns of the data): " + strings.Join(config.Tasks(), ", ")},
	{"epochs", "", "epochs", "passes over the data"},
	{"steps", "", "steps", "optimizer steps, in place of epochs"},
	{"learning-rate", "", "learning_rate", "learning rate after the warm-up"},
	{"batch-size", "", "batch_size", "rows of a micro-batch"},
	{"max-length", "", "data.max_length", "maximum tokens of a row"},
	{"rank", "r", "adapter.r", "rank of the adapter"},
	{"alpha", "", "adapter.lora_alpha", "scale of the adapter, times the rank"},
	{"quantize", "", "quantize", "quantize the frozen weights: none, int8, nf4 or fp8"},
	{"seed", "", "seed", "seed of all random numbers"},
}

// flags adds the flags.
func (f *startFlags) flags(c *cobra.Command) {
	f.values = map[string]*string{}
	for _, k := range keyFlags {
		f.values[k.flag] = c.Flags().StringP(k.flag, k.short, "", fmt.Sprintf("%s (key %s)", k.usage, k.key))
	}
	c.Flags().StringArrayVarP(&f.data, "data", "d", nil, "training data: file, folder, pattern, or dataset on the Hub (repeatable; key data.train)")
	c.Flags().StringArrayVar(&f.eval, "eval-data", nil, "evaluation data (repeatable; key data.eval)")
}

// given reports whether a flag is given.
func (f *startFlags) given() bool { return len(f.assignments()) > 0 }

// value returns the value of a flag, or "" if it is not given.
func (f *startFlags) value(flag string) string {
	if v := f.values[flag]; v != nil {
		return *v
	}
	return ""
}

// assignments returns the flags in the form of --set.
func (f *startFlags) assignments() (sets []string) {
	for _, k := range keyFlags {
		if v := f.value(k.flag); v != "" {
			sets = append(sets, k.key+"="+v)
		}
	}
	switch steps, epochs := f.value("steps"), f.value("epochs"); { // one replaces the other in a file
	case steps != "" && epochs == "":
		sets = append(sets, "epochs=0")
	case epochs != "" && steps == "":
		sets = append(sets, "steps=0")
	}
	if len(f.data) > 0 {
		sets = append(sets, "data.train="+quickstart.List(f.data))
	}
	if len(f.eval) > 0 {
		sets = append(sets, "data.eval="+quickstart.List(f.eval))
	}
	return sets
}

// check returns an error if a run without a file lacks its model or its data.
func (f *startFlags) check(command string, sets []string) error {
	sets = append(f.assignments(), sets...)
	has := func(key string) bool {
		return slices.ContainsFunc(sets, func(s string) bool { return strings.HasPrefix(s, key+"=") })
	}
	switch {
	case len(sets) == 0:
		return usagef(command, "CONFIG.yaml is missing, or --model and --data")
	case !has("model"):
		return usagef(command, "--model is missing: a folder, or owner/name on the Hub")
	case !has("data.train") && !has("task"):
		return usagef(command, "--data is missing: the file of the training data")
	}
	return nil
}

// wording names the flag in an error about its value, which the configuration calls --set.
func (f *startFlags) wording(err error) error {
	e, ok := errors.AsType[*config.Error](err)
	if !ok || e.Place != "--set" {
		return err
	}
	for _, k := range keyFlags {
		if k.key == e.Key && f.value(k.flag) != "" {
			e.Place = "--" + k.flag
		}
	}
	return err
}

// configure returns the configuration of a file, if there is one, and of the flags. Without a file it chooses the
// settings that the flags leave open, and prints them.
func (a *app) configure(ctx context.Context, file string, f *trainFlags) (c *config.Config, err error) {
	if file != "" {
		if c, err = a.loadSettings(file, f.assignments()); err != nil {
			return nil, f.start.wording(err)
		}
	} else {
		var lines []string
		if c, lines, err = a.chooseSettings(ctx, &f.start, f.assignments()); err != nil {
			return nil, err
		}
		for _, line := range lines {
			a.noteAsIs(line)
		}
	}
	if f.resume != "" {
		c.Resume = f.resume
	}
	return c, nil
}

// noteAsIs prints a note that may begin with spaces.
func (a *app) noteAsIs(line string) { fmt.Fprintln(a.progress(), line) }

// chooseSettings returns a configuration of the sets and, for keys that they leave open, of the model and the data.
func (a *app) chooseSettings(ctx context.Context, f *startFlags, sets []string) (c *config.Config, lines []string, err error) {
	c = config.Default()
	for _, s := range sets {
		if err := c.Set(s); err != nil {
			return nil, nil, f.wording(err)
		}
	}
	shown := a.hubOptions()
	lines, err = quickstart.Choose(ctx, c, hub.Options{Progress: shown.Progress, Warn: shown.Warn})
	a.close()
	if err != nil {
		return nil, nil, fmt.Errorf("train: %w", err)
	}
	return c, lines, f.wording(c.Validate())
}

// settingsFile is the file in output_dir with the settings of a run, and settingsHead is its first line.
const (
	settingsFile = "train.yaml"
	settingsHead = "# Settings of the run that wrote this folder; lorafuse train repeats it with this file."
)

// saveSettings writes the settings of a run into output_dir, and returns the file that repeats the run. It keeps a file
// that somebody else has written.
func (a *app) saveSettings(c *config.Config, from string, f *trainFlags) (file string, err error) {
	path := filepath.Join(c.OutputDir, settingsFile)
	raw, err := c.Settings()
	if err != nil {
		return "", err
	}
	text := append([]byte(settingsHead+"\n"), raw...)
	switch old, err := os.ReadFile(path); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", &failure{err}
	case err == nil && bytes.Equal(old, text):
	case err == nil && !bytes.HasPrefix(old, []byte(settingsHead+"\n")):
		if from == "" || filepath.Clean(from) != path {
			a.note("note     %s is not from lorafuse train and is kept; the settings are not saved", path)
		}
		return from, nil
	default:
		if err := fsatomic.WriteFile(path, text); err != nil {
			return "", &failure{err}
		}
	}
	if from != "" {
		return from, nil
	}
	f.saved = true
	a.note("repeat   lorafuse train %s", shellWord(path))
	return path, nil
}
