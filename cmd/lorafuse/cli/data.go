package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/data/imagefolder"
)

func (a *app) data() *cobra.Command {
	c := a.group(&cobra.Command{
		Use:   "data",
		Short: "Show and validate datasets, and cache encodings of images",
	})
	c.AddCommand(a.dataShow(), a.dataValidate(), a.dataCache())
	return c
}

// validation is the output of `data validate --json`.
type validation struct {
	Valid  bool                     `json:"valid"`
	Counts map[imagefolder.Kind]int `json:"counts"` // of problems
	*imagefolder.Folder
}

func (a *app) dataValidate() *cobra.Command {
	var o imagefolder.Options
	var f textFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "validate DIR|FILE...",
		Short: "Validate files of rows, or a folder of captioned images",
		Long: `Validate data before training, and report all problems.

FILE is a data file as in the key data.train: a file, a folder of files, a pattern, or a
dataset on the Hub. Every bad row is reported with its line and the expected form. With
--model rows are tokenized too, which finds rows without an answer, template errors and
wrong token IDs. --task and --set data.KEY=VALUE apply the keys of a training run.

DIR is a folder of captioned images for a diffusion model. 001.txt is the caption of
001.png. Images end in .png, .jpg, .jpeg or .webp, in upper or lower case; subfolders of
DIR and names that begin with a dot are ignored.

The command reports images without a caption, captions without an image, empty and
non-UTF-8 captions, images whose names differ only in the extension, unreadable files,
and truncated or mislabeled images. Pixels are not decoded.

With --control every image needs an image of the same name in that folder. With --cache
the entries of that cache of embeddings and latents are checked too, and stale, damaged
and orphaned ones reported. Missing entries and entries written by other programs, which
may be stale, are only counted.

If anything is reported, the exit status is 1.`,
		Example: `  lorafuse data validate train.csv eval.jsonl --model path/to/model
  lorafuse data validate pictures
  lorafuse data validate pictures --control originals --json
  lorafuse data validate pictures --cache output/cache`,
		Args: args(-1, "DIR or FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 || o.Control == "" && o.Cache == "" && hasRows(args[0]) {
				return a.validateText(c.Context(), &f, args, asJSON)
			}
			f, err := a.readImageFolder(c.Context(), args[0], o)
			if err != nil {
				return err
			}
			v := validation{Valid: len(f.Problems) == 0, Counts: map[imagefolder.Kind]int{}, Folder: f}
			for _, p := range f.Problems {
				v.Counts[p.Kind]++
			}
			if asJSON {
				err = a.out.json(v)
			} else {
				a.printValidation(v)
			}
			if err == nil && !v.Valid {
				err = differs("data validate: %s: %s", args[0], v.summary())
			}
			return err
		},
	}
	c.Flags().StringVar(&o.Control, "control", "", "folder of control images, for models that edit images")
	c.Flags().StringVar(&o.Cache, "cache", "", "cache folder, with text_embs and img_embs")
	f.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// readImageFolder reads with a display of its progress.
func (a *app) readImageFolder(ctx context.Context, dir string, o imagefolder.Options) (*imagefolder.Folder, error) {
	o.Progress = a.tasks()
	return imagefolder.Read(ctx, dir, o)
}

// summary counts the problems: "2 missing caption, 1 bad image".
func (v *validation) summary() string {
	var parts []string
	seen := map[imagefolder.Kind]bool{}
	for _, p := range v.Problems { // in the order of the kinds
		if !seen[p.Kind] {
			parts = append(parts, fmt.Sprintf("%d %v", v.Counts[p.Kind], p.Kind))
		}
		seen[p.Kind] = true
	}
	return strings.Join(parts, ", ")
}

func (a *app) printValidation(v validation) {
	rows := [][]string{
		{"folder", oneLine(v.Dir)},
		{"images", fmt.Sprintf("%d, %d with a caption", v.Images, v.Pairs)},
		{"captions", fmt.Sprint(v.Captions)},
	}
	if v.Controls > 0 {
		rows = append(rows, []string{"control images", fmt.Sprint(v.Controls)})
	}
	if v.Others > 0 {
		rows = append(rows, []string{"other files", fmt.Sprint(v.Others)})
	}
	if v.Folders > 0 {
		rows = append(rows, []string{"folders", fmt.Sprintf("%d, which are not looked at", v.Folders)})
	}
	if e := v.Cache; e != nil {
		rows = append(rows, []string{"cache", fmt.Sprintf("%d texts, %d images, %d control images; %d not built yet, %d without a key", e.Text, e.Images, e.Controls, e.Missing, e.Unkeyed)})
	}
	a.out.table(rows)
	if v.Valid {
		a.out.printf("nothing is missing, nothing is left over: the folder is valid\n")
		return
	}
	table := [][]string{{"", "PROBLEM", "FILE", "DETAIL"}}
	for _, p := range v.Problems {
		table = append(table, []string{"", p.Kind.String(), oneLine(p.File), oneLine(p.Detail)})
	}
	a.out.table(table)
}
