package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/internal/embed"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/model"
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
	texts    int
	batch    []text
	embedder *embed.Embedder
	began    time.Time // of a batch
	took     time.Duration
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
of matrix multiplications with other numbers of rows.`,
		Example: `  lorafuse embed --model sentence-transformers/all-MiniLM-L6-v2 --input texts.txt --output vectors.safetensors
  echo '{"id": 7, "text": "Where is the station?"}' | lorafuse embed --model path/to/model --json
  lorafuse embed --model path/to/model --adapter output/adapter --input texts.jsonl --prompt-name query --output vectors.jsonl`,
		Args: args(0),
		RunE: func(c *cobra.Command, _ []string) error { return a.runEmbed(c.Context(), c.CommandPath(), &e) },
	}
	e.flags(c)
	e.machineFlags(c)
	e.quantizeFlag(c)
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

func (a *app) runEmbed(ctx context.Context, command string, e *embedding) error {
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
	s, err := a.open(ctx, &e.modelFlags)
	if err != nil {
		return err
	}
	defer s.close()
	if e.options.Tokenizer, err = s.model.Tokenizer(); err != nil {
		return err
	}
	e.options.Progress = func(done, total int) { a.steps("embedding", e.texts+done, e.texts+total, e.began) }
	if e.embedder, err = embed.New(ctx, s.dev, s.model.Model, s.model.State, e.options); err != nil {
		return err
	}
	defer e.embedder.Close()
	var in io.Reader = a.in
	name := "standard input"
	if e.input != "-" {
		f, err := os.Open(e.input)
		if err != nil {
			return fmt.Errorf("embed: %w", err)
		}
		defer f.Close()
		in, name = f, e.input
		e.json = e.json || strings.EqualFold(filepath.Ext(e.input), ".jsonl")
	}
	if err := a.write(e, func() error { return a.embedAll(ctx, e, in, name) }); err != nil {
		return err
	}
	a.close()
	a.loaded(s.dev)
	if n := e.embedder.Truncated(); n > 0 {
		a.note("note     %d of %d texts were longer than %d tokens, and cut", n, e.texts, e.embedder.MaxLength())
	}
	a.note("done     %d texts in %.2f s, %.1f a second", e.texts, e.took.Seconds(), float64(e.texts)/max(e.took.Seconds(), 1e-9))
	return nil
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

// embedAll reads texts in batches and writes their embeddings.
func (a *app) embedAll(ctx context.Context, e *embedding, in io.Reader, name string) error {
	n := 0
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
		if e.batch = append(e.batch, t); len(e.batch) < embedAtOnce {
			return nil
		}
		return a.embedBatch(ctx, e)
	})
	if err != nil {
		return err
	}
	return a.embedBatch(ctx, e)
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

func (a *app) embedBatch(ctx context.Context, e *embedding) error {
	if len(e.batch) == 0 {
		return nil
	}
	texts := make([]string, len(e.batch))
	for i, t := range e.batch {
		texts[i] = t.text
	}
	e.began = time.Now()
	vectors, err := e.embedder.Embed(ctx, texts)
	if err != nil {
		return err
	}
	e.took += time.Since(e.began)
	e.texts += len(texts)
	if e.out == nil {
		for _, v := range vectors {
			e.vectors = append(e.vectors, v...)
		}
	} else if err := e.lines(vectors); err != nil {
		return err
	}
	e.batch = e.batch[:0]
	return nil
}

// lines writes a line for each vector.
func (e *embedding) lines(vectors [][]float32) error {
	w := bufio.NewWriter(e.out)
	for i, v := range vectors {
		numbers, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if e.json {
			line := bytes.TrimRight(bytes.TrimSuffix(e.batch[i].line, []byte("}")), " \t") // which has a member
			numbers = slices.Concat(line, []byte(`, "embedding": `), numbers, []byte("}"))
		}
		if _, err := w.Write(append(numbers, '\n')); err != nil {
			return err
		}
	}
	return w.Flush()
}
