package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/data/imagefolder"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
	"github.com/lorafuse/lorafuse/train/config"
)

// textFlags holds the flags that say how rows are read.
type textFlags struct {
	model string
	task  string
	sets  []string
}

func (f *textFlags) flags(c *cobra.Command) {
	c.Flags().StringVarP(&f.model, "model", "m", "", "model whose tokenizer and chat template are used: a folder, or owner/name[@revision] on the hub")
	c.Flags().StringVar(&f.task, "task", string(config.TaskLanguage), "training task of the rows: "+strings.Join(config.Tasks(), ", "))
	c.Flags().StringArrayVar(&f.sets, "set", nil, "key of a training run, such as data.columns.prompt=question (repeatable)")
}

// textOptions returns the options of a run, with the tokenizer of the model if one is given, which is returned too.
func (a *app) textOptions(ctx context.Context, command string, f *textFlags) (o data.Options, tok *tokenizer.Tokenizer, err error) {
	c := config.Default()
	for _, set := range append([]string{"task=" + f.task}, f.sets...) {
		if err := c.Set(set); err != nil {
			return o, nil, err
		}
	}
	o = c.DataOptions()
	o.Resolve = hub.DataFiles(ctx, a.hubOptions())
	if f.model == "" {
		o.ParseOnly = true
		return o, nil, nil
	}
	dir, err := a.resolve(ctx, command, f.model, hub.Options{WithoutWeights: true})
	if err != nil {
		return o, nil, err
	}
	if tok, err = tokenizer.Load(dir); err != nil {
		return o, nil, err
	}
	template, err := chat.Find(c.Data.ChatTemplate, tok.SpecialTokens(), dir)
	if err != nil {
		return o, nil, fmt.Errorf("%s: data.chat_template: %w", command, err)
	}
	o.Tokenizer, o.Texts = tok, tok
	if template != nil {
		o.Template = data.Chat(template)
	}
	return o, tok, nil
}

// shownRow is a row of `data show --json`.
type shownRow struct {
	IDs    []int32 `json:"ids"`
	Labels []int32 `json:"labels"` // the token's ID if it carries loss, or -100
	Text   string  `json:"text"`
}

func (a *app) dataShow() *cobra.Command {
	var f textFlags
	var asJSON bool
	var n int
	color := "auto"
	c := &cobra.Command{
		Use:   "show FILE... --model M",
		Short: "Show rows as a model sees them",
		Long: `Print rows of training data as the model sees them: after the chat template and the
tokenizer, with special tokens and cut to data.max_length. Text that carries loss is
green, other text is dim; without color text with loss is in ⟦brackets⟧.

FILE is a data file as in the key data.train: a file, a folder of files, a pattern, or a
dataset on the Hub. --task and --set data.KEY=VALUE apply the keys of a training run.

With --json each text is a line {"ids": [...], "labels": [...], "text": "..."}. A label
is the ID of a token that carries loss, or -100.`,
		Example: `  lorafuse data show train.csv --model path/to/model
  lorafuse data show openai/gsm8k:main:train --model path/to/model -n 1 --json
  lorafuse data show train.jsonl --model path/to/base --set data.chat_template=chatml`,
		Args: args(-1, "FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			if f.model == "" {
				return usagef(c.CommandPath(), "--model is missing")
			}
			if n < 1 {
				return fmt.Errorf("data show: -n: found %d, expected 1 or more", n)
			}
			paint, err := a.painted(color)
			if err != nil {
				return err
			}
			o, tok, err := a.textOptions(c.Context(), "data show", &f)
			if err != nil {
				return err
			}
			o.MaxRows = n
			set, err := data.Load(c.Context(), args, o)
			if err != nil {
				return err
			}
			return a.showRows(set, tok, min(n, set.Len()), asJSON, paint)
		},
	}
	f.flags(c)
	c.Flags().IntVarP(&n, "rows", "n", 3, "number of rows")
	c.Flags().StringVar(&color, "color", color, "mark text by color: auto, always or never")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON lines with token IDs and labels")
	return c
}

// painted reports whether output is in color.
func (a *app) painted(when string) (bool, error) {
	switch when {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		return os.Getenv("NO_COLOR") == "" && isTerminal(a.out.w), nil
	}
	return false, fmt.Errorf("data show: --color: found %q, expected auto, always or never", when)
}

// showRows prints the first rows of a dataset.
func (a *app) showRows(set *data.Dataset, tok *tokenizer.Tokenizer, n int, asJSON, paint bool) error {
	if !asJSON {
		for _, line := range set.Report() {
			a.out.printf("data     %s\n", line)
		}
	}
	for r := range n {
		for t := range set.Texts() {
			row := set.Text(r, t)
			text, err := tok.Decode(row.IDs, false)
			if err != nil {
				return err
			}
			if asJSON {
				if err := a.out.jsonLine(shownRow{row.IDs, row.Labels, text}); err != nil {
					return err
				}
				continue
			}
			marked, learned, err := markLoss(row, tok, paint)
			if err != nil {
				return err
			}
			name := fmt.Sprintf("row %d", r+1)
			if set.Texts() > 1 {
				name += fmt.Sprintf(", text %d", t+1)
			}
			a.out.printf("\n%s: %d tokens, %d with loss\n%s\n", name, len(row.IDs), learned, marked)
		}
	}
	return nil
}

// markLoss returns the text of a row in which the runs of tokens with loss are marked, and their number of tokens.
func markLoss(row data.Row, tok *tokenizer.Tokenizer, paint bool) (marked string, learned int, err error) {
	var b strings.Builder
	for from := 0; from < len(row.IDs); {
		loss, to := row.Labels[from] != data.Ignore, from
		for to < len(row.IDs) && (row.Labels[to] != data.Ignore) == loss {
			to++
		}
		text, err := tok.Decode(row.IDs[from:to], false)
		if err != nil {
			return "", 0, err
		}
		switch {
		case loss && paint:
			text = "\x1b[32m" + text + "\x1b[0m"
		case loss:
			text = "⟦" + text + "⟧"
		case paint:
			text = "\x1b[2m" + text + "\x1b[0m"
		}
		if loss {
			learned += to - from
		}
		b.WriteString(text)
		from = to
	}
	return b.String(), learned, nil
}

// textValidation is the output of `data validate --json` for files of rows.
type textValidation struct {
	Valid    bool     `json:"valid"`
	Rows     int      `json:"rows"` // that are valid
	Files    []string `json:"files"`
	Problems []string `json:"problems"`
}

// validateText validates files of rows.
func (a *app) validateText(ctx context.Context, f *textFlags, files []string, asJSON bool) error {
	o, _, err := a.textOptions(ctx, "data validate", f)
	if err != nil {
		return err
	}
	v := textValidation{Files: []string{}, Problems: []string{}}
	o.Refused = func(err error) { v.Problems = append(v.Problems, oneLine(err.Error())) }
	set, err := data.Load(ctx, files, o)
	switch {
	case err != nil && (ctx.Err() != nil || len(v.Problems) == 0):
		return err
	case err == nil:
		v.Rows, v.Files = set.Stats().Rows, append(v.Files, set.Report()...)
	}
	v.Valid = len(v.Problems) == 0
	if asJSON {
		err = a.out.json(v)
	} else {
		for _, line := range v.Files {
			a.out.printf("data     %s\n", line)
		}
		for _, p := range v.Problems {
			a.out.printf("%s\n", p)
		}
		err = nil
		if v.Valid {
			a.out.printf("valid: %d rows\n", v.Rows)
		}
	}
	if err == nil && !v.Valid {
		err = differs("data validate: %s: %d problem%s", strings.Join(files, ", "), len(v.Problems), plural(len(v.Problems)))
	}
	return err
}

// hasRows reports whether a path names files of rows rather than a folder of images.
func hasRows(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return strings.ContainsAny(path, "*?[") || data.IsFile(path) || hub.IsDataset(path) && strings.Contains(path, "/")
	}
	if !info.IsDir() {
		return true
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return false
	}
	images := slices.ContainsFunc(entries, func(e os.DirEntry) bool { return imagefolder.IsImage(e.Name()) })
	return !images && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return data.IsFile(e.Name()) && !strings.HasSuffix(e.Name(), ".txt") })
}
