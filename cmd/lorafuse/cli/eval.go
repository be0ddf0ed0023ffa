package cli

import (
	"context"
	"encoding/binary"
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
	"github.com/lorafuse/lorafuse/internal/ranks"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/tensor"
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
from the model's config.json.

With --devices, or under mpirun, the batches are shared; the results stay the same.`,
		Example: `  lorafuse eval --model path/to/model --data test.jsonl
  lorafuse eval --model path/to/model --data test.jsonl --quantize int8
  lorafuse eval --model path/to/model --adapter output/adapter --data a.jsonl --data b.jsonl --train-on all --json
  lorafuse eval --model path/to/encoder --adapter output/adapter --data labelled.jsonl --scores scores.safetensors
  lorafuse eval --model path/to/model --data test.jsonl --devices all`,
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
			return a.onRanks(c.Context(), &f.modelFlags, func(ctx context.Context, a *app, g *ranks.Group) error {
				own := f
				e, err := a.runEval(ctx, g, &own)
				if err != nil || !a.leads() {
					return err
				}
				if f.json {
					return a.out.json(e)
				}
				a.out.printf("%s", e.text())
				return nil
			})
		},
	}
	f.flags(c)
	f.machineFlags(c)
	f.quantizeFlag(c)
	f.devicesFlag(c)
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

// evalRun is an evaluation that is ready to start.
type evalRun struct {
	*session
	set   *data.Dataset
	rows  *data.Loader
	score func(ctx context.Context, b *data.Batch) (batchScore, error)
	// result returns the result from the scores of all batches; the ranks but 0 need none.
	result func(total batchScore, m measurement) (evaluated, error)
	close  func()
}

func (a *app) runEval(ctx context.Context, g *ranks.Group, f *evalFlags) (evaluated, error) {
	var r *evalRun
	var same map[string]string
	err := g.Do(ctx, func(ctx context.Context) (err error) {
		if r, err = a.openEval(ctx, f); err == nil && g != nil {
			same, err = r.identity()
			same["data"] = fmt.Sprintf("rows %x", r.set.Digest())
		}
		return err
	})
	if r != nil {
		defer r.close()
	}
	if err == nil {
		err = f.compareRanks(ctx, g, r.dev, same)
	}
	if err != nil {
		return nil, err
	}
	total, m, err := a.measure(ctx, g, r)
	if err != nil || !a.leads() {
		return nil, err
	}
	return r.result(total, m)
}

// openEval opens the model and reads the data.
func (a *app) openEval(ctx context.Context, f *evalFlags) (*evalRun, error) {
	s, err := a.open(ctx, &f.modelFlags)
	if err != nil {
		return nil, err
	}
	r := &evalRun{session: s, close: s.close}
	c := s.model.Config
	switch _, encoder := c.Family.(*model.Encoder); {
	case c.Part == model.Classifier:
		err = a.openClasses(ctx, f, r)
	case encoder:
		err = fmt.Errorf("eval: %s: %w: expected a language model or a classifier; the adapter of a classifier contains its head", c.Architecture, model.ErrTask)
	case f.scores != "" || len(f.labels) > 0 || f.problem != "":
		err = fmt.Errorf("eval: --scores, --labels and --problem are for classifiers, and this is the language model %s", c.Architecture)
	default:
		err = a.openLanguage(ctx, f, r)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// openLanguage prepares to measure the loss of a language model.
func (a *app) openLanguage(ctx context.Context, f *evalFlags, r *evalRun) (err error) {
	s := r.session
	o := data.Options{TrainOn: f.trainOn, MaxLength: f.length, DocumentSeparator: f.sep, VocabSize: s.model.Config.VocabSize}
	if f.needsTokenizer() {
		texts, err := s.model.Texts("--chat-template", f.template)
		if err != nil {
			return err
		}
		o.Tokenizer = texts.Tokenizer
		if texts.Template != nil {
			o.Template = data.Chat(texts.Template)
		}
	}
	if r.set, r.rows, err = a.loadRows(ctx, f, o); err != nil {
		return err
	}
	scorer, err := generate.NewScorer(s.dev, s.model.Model, s.model.State, r.rows.MaxTokens())
	if err != nil {
		return err
	}
	r.close = func() {
		scorer.Close()
		s.close()
	}
	r.score = func(ctx context.Context, b *data.Batch) (batchScore, error) {
		loss, err := scorer.Loss(ctx, b)
		return batchScore{loss: loss, count: b.LossTokens}, err
	}
	r.result = func(total batchScore, m measurement) (evaluated, error) {
		stats := r.set.Stats()
		if limit := s.model.Config.MaxLength(); stats.Longest > limit {
			a.note("note     rows have up to %d tokens, the model was made for %d", stats.Longest, limit)
		}
		a.noteCut(m)
		return &evaluation{
			Loss: total.loss, Perplexity: number(math.Exp(total.loss)), Tokens: total.count, AllTokens: stats.Tokens, Rows: stats.Rows, measurement: m,
		}, nil
	}
	return nil
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

// batchScore is the result of one batch, or of all.
type batchScore struct {
	loss         float64 // sum over the batch; of all, the mean
	count, right int     // losses, and correct rows of a classifier
	scores       []float32
}

// encode returns the score for another rank.
func (s *batchScore) encode() []byte {
	raw := binary.LittleEndian.AppendUint64(nil, math.Float64bits(s.loss))
	raw = binary.LittleEndian.AppendUint64(raw, uint64(s.count))
	raw = binary.LittleEndian.AppendUint64(raw, uint64(s.right))
	return append(raw, tensor.BytesOf(s.scores)...)
}

// add adds the encoded score of a batch.
func (s *batchScore) add(raw []byte) {
	s.loss += math.Float64frombits(binary.LittleEndian.Uint64(raw))
	s.count += int(binary.LittleEndian.Uint64(raw[8:]))
	s.right += int(binary.LittleEndian.Uint64(raw[16:]))
	scores := make([]float32, len(raw[24:])/4)
	copy(tensor.BytesOf(scores), raw[24:])
	s.scores = append(s.scores, scores...)
}

// measure computes the scores of all batches, which ranks share. On rank 0 it returns their sum, with the mean loss.
func (a *app) measure(ctx context.Context, g *ranks.Group, r *evalRun) (total batchScore, m measurement, err error) {
	began, batches := time.Now(), r.rows.StepsPerEpoch()
	var b data.Batch
	err = ranks.Collect(ctx, g, ranks.Numbers(batches), func(ctx context.Context, i int, _ []byte) ([]byte, error) {
		if err := r.rows.Fill(&b, i, 0); err != nil {
			return nil, err
		}
		score, err := r.score(ctx, &b)
		return score.encode(), underWay(err)
	}, func(i int, result []byte) error {
		total.add(result)
		a.steps("evaluating", i+1, batches, began)
		return nil
	})
	a.close()
	if err != nil || !a.leads() {
		return total, m, err
	}
	m.Load = a.loaded(r.dev)
	if total.loss /= float64(max(1, total.count)); math.IsNaN(total.loss) || math.IsInf(total.loss, 0) {
		return total, m, fmt.Errorf("eval: the loss is %v: %w", total.loss, train.ErrNotFinite)
	}
	stats := r.set.Stats()
	m.Truncated, m.Dropped = stats.Truncated, stats.Dropped
	m.Seconds = time.Since(began).Seconds()
	m.TokensPerSecond = float64(stats.Tokens) / m.Seconds
	return total, m, nil
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
