package cli

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/train"
)

// evalFlags holds the flags of `eval`.
type evalFlags struct {
	modelFlags
	files    []string
	format   data.Format
	trainOn  data.TrainOn
	tooLong  data.TooLong
	sep      string
	template string
	length   int
	batch    int
	json     bool

	labels  []string
	problem data.Problem
	scores  string
}

// evaluated is the result of an evaluation. It can be printed as JSON or as text.
type evaluated interface{ text() string }

// evaluation is the output of `eval --json`.
type evaluation struct {
	Loss       float64 `json:"loss"`       // nats per token
	Perplexity number  `json:"perplexity"` // exp(loss); null if that is infinite
	Tokens     int     `json:"tokens"`     // that carry loss
	AllTokens  int     `json:"all_tokens"`
	Rows       int     `json:"rows"`
	measurement
}

// measurement is the end of each output of `eval --json`.
type measurement struct {
	Truncated       int     `json:"truncated_rows"`
	Dropped         int     `json:"dropped_rows"`
	Seconds         float64 `json:"seconds"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	// Load describes how the weights were uploaded to a device with its own memory.
	Load *backend.LoadStats `json:"load,omitempty"`
}

func (e *evaluation) text() string {
	return fmt.Sprintf("loss        %.6f\nperplexity  %.6g\ntokens      %d that carry loss, of %d in %d rows\n", e.Loss, e.Perplexity, e.Tokens, e.AllTokens, e.Rows)
}

func (a *app) eval() *cobra.Command {
	f := evalFlags{modelFlags: modelFlags{classifies: true}}
	c := &cobra.Command{
		Use:   "eval --model DIR [--adapter DIR] --data FILE...",
		Short: "Evaluate loss and perplexity on a dataset",
		Long: `Compute the loss of a model, with or without an adapter: the mean negative
log-likelihood, in nats, of all tokens with loss, and its exponential, the perplexity.
The data is read as by lorafuse train, and the flags have the names and defaults of its
keys under data.

For a classifier, or an adapter of one, it computes the loss and the accuracy on rows
{"text": "...", "label": "..."} with optional text_pair: the mean loss per row, and the
fraction of rows with the correct classes. The class names come from the adapter or
from the model's config.json.`,
		Example: `  lorafuse eval --model path/to/model --data test.jsonl
  lorafuse eval --model path/to/model --data test.jsonl --quantize int8
  lorafuse eval --model path/to/model --adapter output/adapter --data a.jsonl --data b.jsonl --train-on all --json
  lorafuse eval --model path/to/encoder --adapter output/adapter --data labelled.jsonl --scores scores.safetensors`,
		Args: args(-1),
		RunE: func(c *cobra.Command, more []string) error {
			f.files = append(f.files, more...)
			if len(f.files) == 0 {
				return usagef(c.CommandPath(), "--data is missing: a file with rows, such as .jsonl, .csv or .parquet")
			}
			if f.batch < 1 {
				return fmt.Errorf("eval: --batch-size: found %d, expected 1 or more", f.batch)
			}
			if f.length < 2 {
				return fmt.Errorf("eval: --max-length: found %d, expected 2 or more", f.length)
			}
			e, err := a.runEval(c.Context(), &f)
			if err != nil {
				return err
			}
			if f.json {
				return a.out.json(e)
			}
			a.out.printf("%s", e.text())
			return nil
		},
	}
	f.flags(c)
	f.machineFlags(c)
	f.quantizeFlag(c)
	flags := c.Flags()
	flags.StringArrayVarP(&f.files, "data", "d", nil, "file, folder, pattern, or dataset on the Hub to evaluate on (repeatable)")
	choose(flags, &f.format, "format", string(data.FormatAuto), data.Formats(), "format of the files: auto, jsonl, json, csv, tsv, parquet, text or tokens")
	choose(flags, &f.trainOn, "train-on", string(data.TrainOnAnswer), data.TrainOns(), "tokens with loss: answer or all")
	flags.IntVar(&f.length, "max-length", 1024, "maximum tokens per row")
	choose(flags, &f.tooLong, "on-too-long", string(data.Truncate), data.TooLongs(), "handling of longer rows: truncate, drop or error")
	flags.StringVar(&f.sep, "document-separator", "", "separator of the documents in a text file, or blank-line")
	flags.StringVar(&f.template, "chat-template", "", "file with a Jinja chat template that replaces the tokenizer's, or chatml, gemma, llama3 or mistral")
	flags.IntVar(&f.batch, "batch-size", 8, "rows per batch")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.StringSliceVar(&f.labels, "labels", nil, "class names that replace the classifier's, separated by commas")
	choose(flags, &f.problem, "problem", "", data.Problems(), "problem type that replaces the classifier's: single_label_classification, multi_label_classification or regression")
	flags.StringVar(&f.scores, "scores", "", "output file for the classifier's scores of all rows, .safetensors: scores [rows, classes]")
	return c
}

func (a *app) runEval(ctx context.Context, f *evalFlags) (evaluated, error) {
	s, err := a.open(ctx, &f.modelFlags)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if s.model.Config.Part == model.Classifier {
		return a.evalClasses(ctx, f, s)
	}
	if _, encoder := s.model.Config.Family.(*model.Encoder); encoder {
		return nil, fmt.Errorf("eval: %s: %w: expected a language model or a classifier; the adapter of a classifier contains its head", s.model.Config.Architecture, model.ErrTask)
	}
	if f.scores != "" || len(f.labels) > 0 || f.problem != "" {
		return nil, fmt.Errorf("eval: --scores, --labels and --problem are for classifiers, and this is the language model %s", s.model.Config.Architecture)
	}
	return a.evalLanguage(ctx, f, s)
}

// evalLanguage measures the loss of a language model.
func (a *app) evalLanguage(ctx context.Context, f *evalFlags, s *session) (*evaluation, error) {
	o := data.Options{TrainOn: f.trainOn, MaxLength: f.length, DocumentSeparator: f.sep, VocabSize: s.model.Config.VocabSize}
	if f.needsTokenizer() {
		texts, err := s.model.Texts("--chat-template", f.template)
		if err != nil {
			return nil, err
		}
		o.Tokenizer = texts.Tokenizer
		if texts.Template != nil {
			o.Template = data.Chat(texts.Template)
		}
	}
	set, rows, err := a.loadRows(ctx, f, o)
	if err != nil {
		return nil, err
	}
	scorer, err := generate.NewScorer(s.dev, s.model.Model, s.model.State, rows.MaxTokens())
	if err != nil {
		return nil, err
	}
	defer scorer.Close()
	stats := set.Stats()
	e := &evaluation{AllTokens: stats.Tokens, Rows: stats.Rows}
	e.Loss, e.measurement, err = a.measure(s, set, rows, func(b *data.Batch) (float64, int, error) {
		e.Tokens += b.LossTokens
		loss, err := scorer.Loss(ctx, b)
		return loss, b.LossTokens, err
	})
	if err != nil {
		return nil, err
	}
	if limit := s.model.Config.MaxLength(); stats.Longest > limit {
		a.note("note     rows have up to %d tokens, the model was made for %d", stats.Longest, limit)
	}
	a.noteCut(e.measurement)
	e.Perplexity = number(math.Exp(e.Loss))
	return e, nil
}

// loadRows reads and tokenises the files as a training run does, and divides them into batches.
func (a *app) loadRows(ctx context.Context, f *evalFlags, o data.Options) (*data.Dataset, *data.Loader, error) {
	o.Format, o.OnTooLong = f.format, f.tooLong
	report := a.loading()
	o.Progress = func(p data.Progress) { report("reading data", p.Bytes, p.Size) }
	o.Resolve = hub.DataFiles(ctx, a.hubOptions())
	set, err := data.Load(ctx, f.files, o)
	if err != nil {
		return nil, nil, err
	}
	for _, line := range set.Report() {
		a.note("data     %s", line)
	}
	rows, err := data.Sequential(set, f.batch)
	return set, rows, err
}

// measure returns the mean loss. score returns the sum of the losses of a batch, and their number.
func (a *app) measure(s *session, set *data.Dataset, rows *data.Loader, score func(*data.Batch) (float64, int, error)) (loss float64, m measurement, err error) {
	began, count, step := time.Now(), 0, 0
	for b, err := range rows.Batches() {
		if err != nil {
			return 0, m, err
		}
		sum, n, err := score(b)
		if err != nil {
			return 0, m, underWay(err)
		}
		loss, count, step = loss+sum, count+n, step+1
		a.steps("evaluating", step, rows.StepsPerEpoch(), began)
	}
	a.close()
	m.Load = a.loaded(s.dev)
	if loss /= float64(max(1, count)); math.IsNaN(loss) || math.IsInf(loss, 0) {
		return 0, m, fmt.Errorf("eval: the loss is %v: %w", loss, train.ErrNotFinite)
	}
	stats := set.Stats()
	m.Truncated, m.Dropped = stats.Truncated, stats.Dropped
	m.Seconds = time.Since(began).Seconds()
	m.TokensPerSecond = float64(stats.Tokens) / m.Seconds
	return loss, m, nil
}

// noteCut reports the number of rows that were too long, if any.
func (a *app) noteCut(m measurement) {
	if m.Truncated > 0 || m.Dropped > 0 {
		a.note("note     %d rows truncated, %d dropped for their length", m.Truncated, m.Dropped)
	}
}

// needsTokenizer reports whether any file holds text.
func (f *evalFlags) needsTokenizer() bool {
	if f.format != data.FormatAuto {
		return f.format != data.FormatTokens
	}
	return slices.ContainsFunc(f.files, func(file string) bool { return strings.ToLower(filepath.Ext(file)) != ".safetensors" })
}
