package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/embed"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/ranks"
	"github.com/lorafuse/lorafuse/internal/sentence"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// embedding is one run of `embed`.
type embedding struct {
	modelFlags
	input, output string
	json          bool
	pooling       []string
	options       embed.Options

	out      io.Writer // of lines
	vectors  []float32 // of a safetensors file
	texts    int       // read so far
	done     int       // texts with a vector
	pending  []*embeddedTexts
	session  *session
	embedder *embed.Embedder
	began    time.Time
}

// embeddedTexts are texts that are divided into batches together.
type embeddedTexts struct {
	texts   []text
	batches []embed.Batch // without a result
	vectors [][]float32
}

// text is a line of the input.
type text struct {
	line []byte // with --json, the object
	text string
	at   int
}

// embedAtOnce is the number of texts that are sorted by length together.
const embedAtOnce = 1 << 13

func (a *app) embed() *cobra.Command {
	var e embedding
	c := &cobra.Command{
		Use:   "embed --model DIR [--adapter DIR] [--input FILE] [--output FILE]",
		Short: "Compute text embeddings",
		Long: `Compute the embedding of each line of a file or of standard input, as the
sentence-transformers files in the model folder configure it: pooling, normalization,
dense layers, prompts and maximum length. Without such files the embedding is the mean
of the last hidden states. Encoder and decoder models are supported.

Without --json, each input line is a text and each output line an array of numbers. With
--json, each input line is an object with a text, {"text": "..."}, and the output is that
object with "embedding" added; .jsonl files are always read this way. If the name of the
output ends in .safetensors, it gets one tensor "embeddings" [texts, size] in f32.

Results are in input order. Batching changes an embedding only by rounding differences
of matrix multiplications with other numbers of rows. With --devices, or under mpirun,
the batches are shared, which changes no embedding.`,
		Example: `  lorafuse embed --model sentence-transformers/all-MiniLM-L6-v2 --input texts.txt --output vectors.safetensors
  echo '{"id": 7, "text": "Where is the station?"}' | lorafuse embed --model path/to/model --json
  lorafuse embed --model path/to/model --adapter output/adapter --input texts.jsonl --prompt-name query --output vectors.jsonl
  lorafuse embed --model path/to/model --input texts.txt --output vectors.safetensors --devices all`,
		Args: args(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := e.check(c.CommandPath()); err != nil {
				return err
			}
			return a.onRanks(c.Context(), &e.modelFlags, func(ctx context.Context, a *app, g *ranks.Group) error {
				own := e
				return a.runEmbed(ctx, g, &own)
			})
		},
	}
	e.flags(c)
	e.machineFlags(c)
	e.quantizeFlag(c)
	e.devicesFlag(c)
	flags := c.Flags()
	flags.StringVarP(&e.input, "input", "i", "-", "input file, one text per line; - is standard input")
	flags.StringVarP(&e.output, "output", "o", "-", "output file, .safetensors or JSON lines; - is standard output")
	flags.BoolVar(&e.json, "json", false, "read and write JSON objects with a text")
	flags.StringVar(&e.options.Prompt, "prompt", "", "text to prepend to each input")
	flags.StringVar(&e.options.PromptName, "prompt-name", "", "named prompt of the model to prepend to each input, such as query")
	flags.StringSliceVar(&e.pooling, "pooling", nil, "pooling modes that replace the model's, separated by commas: cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken")
	flags.BoolVar(&e.options.Normalize, "normalize", false, "scale embeddings to length 1 even if the model does not")
	flags.IntVar(&e.options.MaxLength, "max-length", 0, "maximum tokens per text, if less than the model's")
	flags.IntVar(&e.options.BatchTokens, "batch-tokens", 0, "tokens per batch; 0 means 1024")
	return c
}

// check validates the flags without opening anything.
func (e *embedding) check(command string) error {
	if e.options.Prompt != "" && e.options.PromptName != "" {
		return usagef(command, "found --prompt and --prompt-name, expected one of the two")
	}
	for _, name := range e.pooling {
		mode, err := sentence.ParseMode(name)
		if err != nil {
			return fmt.Errorf("--pooling: %w", err)
		}
		e.options.Pooling = append(e.options.Pooling, mode)
	}
	e.part = vectorPart(e.adapter)
	return nil
}

func (a *app) runEmbed(ctx context.Context, g *ranks.Group, e *embedding) error {
	defer e.close()
	var in io.ReadCloser
	name := "standard input"
	var same map[string]string
	if err := g.Do(ctx, func(ctx context.Context) (err error) {
		if err = a.openEmbedder(ctx, e); err == nil && g != nil {
			same, err = e.session.identity()
		}
		if err != nil || !a.leads() {
			return err
		}
		if in = io.NopCloser(a.in); e.input == "-" {
			return nil
		}
		if in, err = os.Open(e.input); err != nil {
			return fmt.Errorf("embed: %w", err)
		}
		name = e.input
		e.json = e.json || strings.EqualFold(filepath.Ext(e.input), ".jsonl")
		return nil
	}); err != nil {
		return err
	}
	if err := e.compareRanks(ctx, g, e.session.dev, same); err != nil {
		return err
	}
	if !a.leads() {
		return a.embedAll(ctx, g, e, nil, "")
	}
	defer in.Close()
	if err := a.write(e, func() error { return a.embedAll(ctx, g, e, in, name) }); err != nil {
		return err
	}
	a.close()
	a.loaded(e.session.dev)
	if n := e.embedder.Truncated(); n > 0 {
		a.note("note     %d of %d texts were longer than %d tokens, and cut", n, e.texts, e.embedder.MaxLength())
	}
	took := time.Since(e.began).Seconds()
	a.note("done     %d texts in %.2f s, %.1f a second", e.texts, took, float64(e.texts)/max(took, 1e-9))
	return nil
}

// openEmbedder opens the model.
func (a *app) openEmbedder(ctx context.Context, e *embedding) (err error) {
	if e.session, err = a.open(ctx, &e.modelFlags); err != nil {
		return err
	}
	s := e.session
	if e.options.Tokenizer, err = s.model.Tokenizer(); err != nil {
		return err
	}
	e.embedder, err = embed.New(ctx, s.dev, s.model.Model, s.model.State, e.options)
	return err
}

func (e *embedding) close() {
	if e.embedder != nil {
		e.embedder.Close()
	}
	if e.session != nil {
		e.session.close()
	}
}

// vectorPart returns the part of a model that computes embeddings. It is the body, whose names adapters for embeddings
// use, or the whole language model for an adapter of one.
func vectorPart(adapter string) model.Part {
	c, err := lora.ReadConfig(adapter) // loading it reports errors
	if adapter != "" && err == nil && c.TaskType != nil && *c.TaskType == "CAUSAL_LM" {
		return model.AsSaved
	}
	return model.Body
}

// write opens the output, calls fill, and closes it.
func (a *app) write(e *embedding, fill func() error) error {
	switch {
	case e.output == "-":
		e.out = a.out
		return fill()
	case strings.EqualFold(filepath.Ext(e.output), ".safetensors"):
		if err := fill(); err != nil {
			return err
		}
		return safetensors.WriteFile(e.output, []safetensors.Entry{{
			Name: "embeddings", DType: safetensors.F32, Shape: []int{e.texts, e.embedder.Size()}, Data: tensor.BytesOf(e.vectors),
		}}, map[string]string{"format": "pt"})
	}
	f, err := fsatomic.Create(e.output)
	if err != nil {
		return err
	}
	defer f.Abort()
	e.out = f
	if err := fill(); err != nil {
		return err
	}
	return f.Commit()
}

// embedAll reads texts and writes their embeddings, whose batches ranks share.
func (a *app) embedAll(ctx context.Context, g *ranks.Group, e *embedding, in io.Reader, name string) error {
	e.began = time.Now()
	return ranks.Collect(ctx, g, e.read(ctx, in, name), func(ctx context.Context, _ int, item []byte) ([]byte, error) {
		var tokens [][]int32
		if err := json.Unmarshal(item, &tokens); err != nil {
			return nil, err
		}
		vectors, err := e.embedder.EmbedTokens(ctx, tokens)
		return tensor.BytesOf(slices.Concat(vectors...)), err
	}, func(_ int, result []byte) error {
		if err := e.take(result); err != nil {
			return err
		}
		a.steps("embedding", e.done, e.texts, e.began)
		return nil
	})
}

// errConsumer ends reading when no more batches are needed.
var errConsumer = errors.New("no more batches are needed")

// read yields the tokens of each batch of the input.
func (e *embedding) read(ctx context.Context, in io.Reader, name string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		n := 0
		var next []text
		flush := func() error {
			if len(next) == 0 {
				return nil
			}
			texts := &embeddedTexts{texts: next, vectors: make([][]float32, len(next))}
			next = nil
			plain := make([]string, len(texts.texts))
			for i, t := range texts.texts {
				plain[i] = t.text
			}
			batches, err := e.embedder.Batches(ctx, plain)
			if err != nil {
				return err
			}
			e.texts += len(texts.texts)
			texts.batches, e.pending = batches, append(e.pending, texts)
			for _, b := range batches {
				item, err := json.Marshal(b.Tokens)
				if err != nil {
					return err
				}
				if !yield(item, nil) {
					return errConsumer
				}
			}
			return nil
		}
		err := eachLine(in, io.Discard, name, func(_ io.Writer, line []byte) error {
			n++
			t := text{text: string(line), at: n}
			if e.json {
				if len(bytes.TrimSpace(line)) == 0 {
					return nil
				}
				if err := t.parse(line); err != nil {
					return err
				}
			}
			if next = append(next, t); len(next) < embedAtOnce {
				return nil
			}
			return flush()
		})
		if err == nil {
			err = flush()
		}
		if err != nil && !errors.Is(err, errConsumer) {
			yield(nil, err)
		}
	}
}

// take adds the vectors of the next batch, and writes those of all texts that were divided together.
func (e *embedding) take(result []byte) error {
	texts := e.pending[0]
	vectors := make([]float32, len(result)/4)
	copy(tensor.BytesOf(vectors), result)
	size := e.embedder.Size()
	for j, i := range texts.batches[0].Texts {
		texts.vectors[i] = vectors[j*size : (j+1)*size]
	}
	e.done += len(texts.batches[0].Texts)
	if texts.batches = texts.batches[1:]; len(texts.batches) > 0 {
		return nil
	}
	e.pending = e.pending[1:]
	if e.out == nil {
		e.vectors = append(e.vectors, slices.Concat(texts.vectors...)...)
		return nil
	}
	return e.lines(texts)
}

// parse reads an object with a text.
func (t *text) parse(line []byte) error {
	var in struct {
		Text *string `json:"text"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return fmt.Errorf(`not {"text": "..."}: %w`, err)
	}
	if in.Text == nil {
		return errors.New(`found no text, expected {"text": "..."}`)
	}
	t.text, t.line = *in.Text, bytes.Clone(bytes.TrimSpace(line))
	return nil
}

// lines writes a line for each vector.
func (e *embedding) lines(texts *embeddedTexts) error {
	w := bufio.NewWriter(e.out)
	for i, v := range texts.vectors {
		numbers, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if e.json {
			line := bytes.TrimRight(bytes.TrimSuffix(texts.texts[i].line, []byte("}")), " \t") // which has a member
			numbers = slices.Concat(line, []byte(`, "embedding": `), numbers, []byte("}"))
		}
		if _, err := w.Write(append(numbers, '\n')); err != nil {
			return err
		}
	}
	return w.Flush()
}
