package cli

import (
	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/model/hub"
)

func (a *app) hubPush() *cobra.Command {
	var o hub.PushOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "push DIR OWNER/NAME",
		Short: "Upload the folder of an adapter or a model",
		Long: `Upload the folder of an adapter or a model to the Hugging Face Hub, and print its
address. A missing repository is created, private unless --public is given. Large files
are uploaded first; one commit at the end makes all files visible. After an interruption
the same command continues, without the parts that have been uploaded. Hidden files are
left out.

HF_TOKEN, or the token file that 'hf auth login' writes, must have write access. A
repository with files that DIR lacks is refused without --force, and a public one
without --public.`,
		Example: `  lorafuse hub push output/adapter acme/support-lora
  lorafuse hub push merged acme/support --public --revision v2 --message "Second run"`,
		Args: args(2, "the folder DIR", "the repository OWNER/NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			shown := a.hubOptions()
			o.Progress, o.Note = shown.Progress, func(text string) { a.note("note     %s", text) }
			done, err := hub.Push(c.Context(), args[0], args[1], o)
			a.close()
			if err != nil {
				if c.Context().Err() != nil {
					err = &interrupted{err}
				}
				return err
			}
			if asJSON {
				return a.out.json(done)
			}
			if done.Files == 0 {
				a.note("hub      %s is up to date", done.Repository)
			} else {
				a.note("hub      %d files, %s, as commit %.8s", done.Files, bytesize.Decimal(float64(done.Bytes)), done.Commit)
			}
			a.out.printf("%s\n", done.URL)
			return nil
		},
	}
	c.Flags().BoolVar(&o.Public, "public", false, "make a new repository public; allow a public one")
	c.Flags().StringVar(&o.Revision, "revision", "", "branch; a missing one is created from main (default main)")
	c.Flags().StringVar(&o.Message, "message", "", "title of the commit")
	c.Flags().BoolVar(&o.Force, "force", false, "allow a repository with other files, which stay")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
