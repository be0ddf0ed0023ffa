package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/train/config"
)

// peerCommands maps commands of other programs to ours.
var peerCommands = map[string]string{
	"run": "chat MODEL", "finetune": "train", "fine-tune": "train", "fine_tune": "train", "sft": "train", "lora": "train", "dpo": "train --task preference",
	"export": "merge --to gguf", "fuse": "merge", "convert-to-gguf": "merge --to gguf", "quantize": "merge --to gguf --dtype q4_k",
	"pull": "hub download NAME", "download": "hub download NAME", "push": "hub push", "upload": "hub push", "api": "serve", "show": "inspect", "preprocess": "data show",
	"complete": "generate", "predict": "generate", "evaluate": "eval", "perplexity": "eval", "merge-lora": "merge", "webui": "serve",
}

// peerFlags maps flags of other programs to ours, for flags that set no key of a training run.
var peerFlags = map[string]string{
	"max-tokens": "max-new-tokens", "max_tokens": "max-new-tokens", "max_new_tokens": "max-new-tokens", "temp": "temperature", "adapter-path": "adapter", "lora": "adapter",
	"top_p": "top-p", "top_k": "top-k", "min_p": "min-p", "repeat-penalty": "repetition-penalty", "system-prompt": "system", "model-path": "model", "load-in-4bit": "quantize", "outfile": "output",
}

// root returns the command tree.
func (a *app) root() *cobra.Command {
	c := a.group(&cobra.Command{
		Use:   "lorafuse",
		Short: "Fine-tune Hugging Face models with LoRA, and run them",
		Long: `lorafuse fine-tunes Hugging Face models with LoRA adapters that PEFT loads, and
runs, evaluates, merges and compares models and adapters.

Results go to standard output, progress and notes to standard error.

` + exitHelp,
		Example: `  lorafuse train config.yaml
  lorafuse generate --model meta-llama/Llama-3.2-1B --adapter output/adapter --prompt "Once"`,
	})
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetFlagErrorFunc(flagError)
	c.SetHelpCommand(a.help(c))
	c.AddCommand(
		a.train(), a.init(), a.generate(), a.chat(), a.draw(), a.serve(), a.embed(), a.eval(), a.merge(),
		a.inspect(), a.convert(), a.adapter(), a.diff(), a.compare(), a.tokenize(), a.data(),
		a.config(), a.devices(), a.graph(), a.health(), a.hub(), a.bench(), a.version(),
	)
	for _, sub := range c.Commands() {
		sub.DisableFlagsInUseLine = true
	}
	onlyOnce(c)
	return c
}

// group makes a command that only holds others.
func (a *app) group(c *cobra.Command) *cobra.Command {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names []string
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		hint := suggest.DidYouMean(args[0], names)
		if ours := peerCommands[args[0]]; ours != "" && !c.HasParent() {
			hint = ", here it is lorafuse " + ours
		}
		if hint == "" {
			hint = ", expected one of " + strings.Join(names, ", ")
		}
		return fmt.Errorf("unknown command %q%s; see '%s --help'", args[0], hint, c.CommandPath())
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return c
}

// help returns cobra's help command, which fails on an unknown topic.
func (a *app) help(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Show help for a command",
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return root.Args(root, rest)
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}

// flagError rewords cobra's error about an invalid flag.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.Is(err, errTwice):
		for inner := errors.Unwrap(err); inner != nil && errors.As(err, &invalid); inner = nil {
			err = inner // without pflag's prefix
		}
		return usagef(c.CommandPath(), "%v", err)
	case errors.As(err, &unknown):
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		name := unknown.GetSpecifiedName()
		if len(name) == 1 {
			return usagef(c.CommandPath(), "unknown flag -%s", name)
		}
		if ours := config.KeyOf(strings.ReplaceAll(name, "-", "_")); ours != "" && c.Flags().Lookup("set") != nil {
			for _, k := range keyFlags {
				if k.key == ours && c.Flags().Lookup(k.flag) != nil {
					return usagef(c.CommandPath(), "unknown flag --%s, here it is --%s", name, k.flag)
				}
			}
			return usagef(c.CommandPath(), "unknown flag --%s, here it is --set %s=VALUE", name, ours)
		}
		if ours := peerFlags[name]; ours != "" && c.Flags().Lookup(ours) != nil {
			return usagef(c.CommandPath(), "unknown flag --%s, here it is --%s", name, ours)
		}
		return usagef(c.CommandPath(), "unknown flag --%s%s", name, suggest.DidYouMean("--"+name, names))
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		if errors.Is(err, errWord) {
			_, text, _ := strings.Cut(invalid.Unwrap().Error(), ": ")
			return usagef(c.CommandPath(), "--%s: %s", f.Name, text)
		}
		return usagef(c.CommandPath(), "--%s: found %q, expected %s", f.Name, invalid.GetValue(), typeName(f))
	}
	return usagef(c.CommandPath(), "%v", err)
}

// typeName returns the name of a flag's value type.
func typeName(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int":
		return "a whole number"
	case "intSlice":
		return "whole numbers, with commas between them"
	case "uint64":
		return "a whole number of 0 or more"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "duration":
		return "a time, such as 90s or 5m"
	}
	return f.Value.Type()
}

// args returns a check of the number of arguments, which error messages call what.
func args(most int, what ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(what):
			return usagef(c.CommandPath(), "%s is missing", what[len(args)])
		case most >= 0 && len(args) > most:
			return usagef(c.CommandPath(), "unexpected argument %q", args[most])
		}
		return nil
	}
}
