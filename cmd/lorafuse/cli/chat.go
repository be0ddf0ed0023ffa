package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) chat() *cobra.Command {
	f := &generateFlags{}
	c := &cobra.Command{
		Use:   "chat MODEL [ADAPTER]",
		Short: "Chat with a model and its adapter in the terminal",
		Long: `Chat with a model. MODEL is a folder, or owner/name[@revision] on the Hub; ADAPTER is a
PEFT adapter folder, whose chat template takes precedence over the model's.

Each line is a message. A line that ends with \ continues on the next one, and lines
between two lines of """ are one message. Ctrl-C stops the answer; the end of input
(Ctrl-D) ends the chat. Piped input is answered line by line.

Commands:
  /reset         start an empty conversation
  /system TEXT   set the system message and start an empty conversation
  /adapter DIR   switch to another adapter; without DIR to none
  /save FILE     write the conversation as JSON, for lorafuse generate --chat
  /quit          end the chat

With --json each answer is one JSON line with its text, token IDs and timings.`,
		Example: `  lorafuse chat Qwen/Qwen2.5-0.5B-Instruct
  lorafuse chat path/to/model output/adapter --temperature 0.7 --system "Answer in one sentence."
  printf 'Hello\nAnd now?\n' | lorafuse chat path/to/model --json`,
		Args: args(2, "MODEL"),
		RunE: func(c *cobra.Command, args []string) error {
			f.model, f.interactive = args[0], true
			if len(args) == 2 {
				f.adapter = args[1]
			}
			f.given = c.Flags().Changed
			if err := f.check(c.CommandPath()); err != nil {
				return err
			}
			return a.runGenerate(c.Context(), nil, f)
		},
	}
	f.command = c.Name()
	f.machineFlags(c)
	f.quantizeFlag(c)
	flags := c.Flags()
	flags.StringVar(&f.system, "system", "", "system message")
	flags.StringVar(&f.template, "chat-template", "", "file with a Jinja chat template that replaces the tokenizer's")
	flags.BoolVar(&f.json, "json", false, "print each answer as a JSON line")
	f.samplingFlags(flags)
	return c
}
