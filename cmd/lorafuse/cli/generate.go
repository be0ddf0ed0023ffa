package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/internal/pretrained"
	"github.com/lorafuse/lorafuse/internal/ranks"
)

// generateFlags holds the flags of `generate`.
type generateFlags struct {
	modelFlags
	prompt      string
	chat        string
	prompts     string
	interactive bool
	system      string
	template    string
	raw         bool
	json        bool
	schema      string
	jsonObject  bool

	newTokens         int
	temperature, topP float64
	topK              int
	minP, repetition  float64
	seed              uint64
	stop              []string

	given func(flag string) bool
}

func (a *app) generate() *cobra.Command { return a.generateCommand(&generateFlags{}) }

func (a *app) generateCommand(f *generateFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "generate --model DIR [--adapter DIR] [--prompt TEXT | --chat FILE | --prompts FILE | -i]",
		Short: "Generate text, chat, or run a file of prompts",
		Long: `Continue a text or answer in a chat, token by token. The prompt is --prompt, a
conversation in a JSON file (--chat; - is standard input), or standard input without its
final line break. With --interactive each input line is a message, as in
lorafuse chat.

--prompts reads JSON lines {"prompt": "..."} or {"messages": [...]} (- is standard input)
and writes one JSON line for each, in order. Several prompts are processed together. Each
result equals that of the prompt alone: bit for bit with --batch-invariant, otherwise
within rounding. With --devices, or under mpirun, the prompts are shared.

--schema restricts each answer to a JSON Schema, --json-object to any JSON object: only
tokens that can lead to a valid answer are sampled. Generation ends when the answer is
complete or --max-new-tokens is reached. A schema with a keyword that cannot be enforced
is rejected, with the position of the keyword.

Defaults come from the model's generation_config.json, with the meaning and defaults of
transformers. Decoding is greedy unless do_sample is true there, or --temperature above
0, --top-k, --top-p or --min-p is given; sampling then defaults to temperature 1 and
top-k 50. Sampling depends only on --seed and on the index of the prompt. The speed is
printed to standard error.`,
		Example: `  lorafuse generate --model path/to/model --prompt "Once upon a time"
  lorafuse generate --model owner/name --adapter output/adapter --chat messages.json --max-new-tokens 200
  echo "Once upon" | lorafuse generate --model path/to/model --temperature 0.8 --top-p 0.9 --seed 7
  lorafuse generate --model path/to/model --prompts prompts.jsonl > answers.jsonl
  lorafuse generate --model path/to/model --prompts prompts.jsonl --devices all > answers.jsonl
  lorafuse generate --model path/to/model --prompt "A person, as JSON: " --schema person.json
  lorafuse generate --model path/to/model --prompt "Once upon a time" --quantize nf4
  lorafuse generate --model path/to/model -i --system "Answer in one sentence."`,
		Args: args(0),
		RunE: func(c *cobra.Command, _ []string) error {
			f.given = c.Flags().Changed
			if err := f.check(c.CommandPath()); err != nil {
				return err
			}
			return a.onRanks(c.Context(), &f.modelFlags, func(ctx context.Context, a *app, g *ranks.Group) error {
				own := *f
				switch {
				case g == nil:
				case f.prompts == "":
					return usagef(c.CommandPath(), "%d devices or MPI ranks share the lines of --prompts, found another prompt, which takes one", g.Size())
				case f.profile != "":
					return usagef(c.CommandPath(), "--profile is of one device, found %d devices or MPI ranks", g.Size())
				}
				return a.runGenerate(ctx, g, &own)
			})
		},
	}
	f.flags(c)
	f.machineFlags(c)
	f.quantizeFlag(c)
	f.devicesFlag(c)
	flags := c.Flags()
	flags.StringVarP(&f.prompt, "prompt", "p", "", "prompt to continue")
	flags.StringVar(&f.chat, "chat", "", "JSON file with the messages of a conversation, or an object with messages and tools")
	flags.StringVar(&f.prompts, "prompts", "", "file of JSON lines with prompt or messages")
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "chat; each input line is a message")
	flags.StringVar(&f.system, "system", "", "system message of a chat, with --prompt as the first user message")
	flags.StringVar(&f.template, "chat-template", "", "file with a Jinja chat template that replaces the tokenizer's")
	flags.BoolVar(&f.raw, "raw", false, "add no special tokens to the prompt and print the special tokens of the answer")
	flags.BoolVar(&f.json, "json", false, "print the complete answer with token IDs and timings as JSON")
	flags.StringVar(&f.schema, "schema", "", "file with a JSON Schema that each answer must match")
	flags.BoolVar(&f.jsonObject, "json-object", false, "restrict each answer to a JSON object")
	f.samplingFlags(flags)
	flags.StringVar(&f.profile, "profile", "", profileUsage)
	return c
}

// samplingFlags adds the flags that choose tokens and end answers.
func (f *generateFlags) samplingFlags(flags *pflag.FlagSet) {
	flags.IntVarP(&f.newTokens, "max-new-tokens", "n", 0, "maximum tokens to generate (default: generation_config.json, or 256)")
	flags.Float64Var(&f.temperature, "temperature", 0, "sampling temperature; 0 means greedy decoding")
	flags.IntVar(&f.topK, "top-k", 0, "sample from the k most likely tokens; 0 means all")
	flags.Float64Var(&f.topP, "top-p", 0, "sample from the most likely tokens whose probabilities sum to p")
	flags.Float64Var(&f.minP, "min-p", 0, "minimum probability of a token, relative to the most likely one")
	flags.Float64Var(&f.repetition, "repetition-penalty", 0, "penalty of repeated tokens; 1 means none")
	flags.Uint64Var(&f.seed, "seed", 0, "random seed")
	flags.StringArrayVar(&f.stop, "stop", nil, "stop string (repeatable)")
}

// check validates the flags without opening anything.
func (f *generateFlags) check(command string) error {
	var sources []string
	for _, name := range []string{"prompt", "chat", "prompts", "interactive"} {
		if f.given(name) {
			sources = append(sources, "--"+name)
		}
	}
	switch {
	case len(sources) > 1:
		return usagef(command, "%s are given, expected one of them", strings.Join(sources, " and "))
	case f.given("max-new-tokens") && f.newTokens < 1:
		return fmt.Errorf("generate: --max-new-tokens: found %d, expected 1 or more", f.newTokens)
	case f.raw && (f.chat != "" || f.interactive || f.system != ""):
		return usagef(command, "--raw goes with a prompt, not with a chat")
	case f.schema != "" && f.jsonObject:
		return usagef(command, "--schema and --json-object are given, expected one of them")
	case f.interactive && f.json && f.command != "chat":
		return usagef(command, "--json does not go with --interactive; --prompts answers many prompts in JSON")
	}
	for _, s := range f.stop {
		if s == "" {
			return fmt.Errorf("generate: --stop: the text is empty")
		}
	}
	return nil
}

// writer answers prompts with one model.
type writer struct {
	app       *app
	flags     *generateFlags
	session   *session
	model     *pretrained.Model // of the session, with the current adapter
	texts     *pretrained.Texts
	generator *generate.Generator // nil with --prompts
	sampler   sample.Sampler
	newTokens int
	load      *backend.LoadStats
	grammar   *constrain.Grammar // nil: answers are free
	full      bool               // an answer has reached the longest text of the model
}

func (a *app) runGenerate(ctx context.Context, g *ranks.Group, f *generateFlags) error {
	if !f.given("prompt") && f.chat == "" && f.prompts == "" && !f.interactive && a.in.terminal() {
		return usagef("lorafuse generate", "nothing to continue: --prompt, --chat, --prompts, --interactive, or a text on standard input")
	}
	w := &writer{app: a, flags: f}
	defer w.close()
	var same map[string]string
	if err := g.Do(ctx, func(ctx context.Context) (err error) {
		if err = w.open(ctx); err == nil && g != nil {
			same, err = w.session.identity()
		}
		return err
	}); err != nil {
		return err
	}
	s := w.session
	if g != nil {
		if err := f.compareRanks(ctx, g, s.dev, same); err != nil {
			return err
		}
		return w.shareAll(ctx, g)
	}
	if f.prompts != "" {
		err := w.answerAll(ctx)
		return errors.Join(err, s.profile.finish())
	}
	var err error
	if w.generator, err = generate.New(ctx, s.dev, s.model.Model, s.model.State, generate.Options{}); err != nil {
		return err
	}
	defer w.generator.Close()
	w.load = a.loaded(s.dev)
	if f.interactive {
		err = w.converse(ctx)
	} else {
		err = w.answerOne(ctx)
	}
	return errors.Join(err, s.profile.finish())
}

// open opens the model and reads the settings of answers.
func (w *writer) open(ctx context.Context) (err error) {
	if w.grammar, err = w.flags.jsonGrammar(); err != nil {
		return err
	}
	if w.session, err = w.app.open(ctx, &w.flags.modelFlags); err != nil {
		return err
	}
	w.model = w.session.model
	if w.texts, err = w.model.Texts("--chat-template", w.flags.template); err != nil {
		return err
	}
	return w.settle(w.model.Dir)
}

func (w *writer) close() {
	if w.session != nil {
		w.session.close()
	}
}

// answerOne streams the answer to a single prompt.
func (w *writer) answerOne(ctx context.Context) error {
	ids, err := w.singlePrompt()
	if err != nil {
		return err
	}
	if w.flags.json {
		r, err := w.generate(ctx, ids, nil)
		if err != nil {
			return err
		}
		answer := newAnswer(ids, r)
		answer.Load = w.load
		return w.app.out.jsonLine(answer)
	}
	_, err = w.stream(ctx, ids)
	return err
}

// stream shows an answer while it is written, and its speed.
func (w *writer) stream(ctx context.Context, ids []int32) (generate.Result, error) {
	out := w.app.out
	shown := false
	r, err := w.generate(ctx, ids, func(t generate.Token) error {
		if t.Text == "" {
			return nil
		}
		shown = true
		_, err := out.Write([]byte(t.Text))
		return err
	})
	if shown && !strings.HasSuffix(r.Text, "\n") || err == nil && !shown {
		out.printf("\n")
	}
	if err != nil {
		return r, err
	}
	fmt.Fprintf(w.app.err, "%d tokens of prompt in %.2f s, %d of answer at %.1f tokens/s\n",
		r.PromptTokens, r.PromptTime.Seconds(), len(r.IDs), r.TokensPerSecond())
	return r, nil
}

// generate answers one prompt.
func (w *writer) generate(ctx context.Context, ids []int32, each func(generate.Token) error) (generate.Result, error) {
	o, err := w.options(0)
	if err != nil {
		return generate.Result{}, err
	}
	r, err := w.generator.Generate(ctx, ids, o, each)
	w.noteCut(r)
	return r, underWay(err)
}

// options returns the generation options of a prompt. sequence is the index of the prompt in a run; it gives each
// prompt its own random numbers.
func (w *writer) options(sequence uint64) (o generate.GenerateOptions, err error) {
	if o, err = w.texts.Answer(w.grammar, !w.flags.raw); err != nil {
		return o, fmt.Errorf("generate: %w", err)
	}
	o.MaxNewTokens, o.Stop, o.Sampler = w.newTokens, w.flags.stop, w.sampler
	o.Sampler.Sequence = sequence
	return o, nil
}

// settle sets how tokens are chosen, from the flags and the file of the model in dir.
func (w *writer) settle(dir string) error {
	g, err := generate.ReadConfig(dir)
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	for _, s := range g.Ignored {
		w.app.note("note     generation_config.json: %s is not honoured", s)
	}
	f := w.flags
	if f.given("repetition-penalty") && f.repetition <= 0 {
		return fmt.Errorf("generate: --repetition-penalty: found %v, expected more than 0", f.repetition)
	}
	w.sampler, w.newTokens, err = g.Sampling(generate.Config{
		Temperature: given(f, "temperature", &f.temperature), TopK: given(f, "top-k", &f.topK), TopP: given(f, "top-p", &f.topP), MinP: given(f, "min-p", &f.minP),
		Repetition: given(f, "repetition-penalty", &f.repetition), MaxNewTokens: given(f, "max-new-tokens", &f.newTokens),
	})
	w.sampler.Seed = f.seed
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	return nil
}

// given returns the value of a flag, or nil if the flag is not given.
func given[T any](f *generateFlags, name string, value *T) *T {
	if f.given(name) {
		return value
	}
	return nil
}

// jsonGrammar returns the grammar that the flags require of answers, or nil.
func (f *generateFlags) jsonGrammar() (*constrain.Grammar, error) {
	switch {
	case f.jsonObject:
		return constrain.JSON(), nil
	case f.schema == "":
		return nil, nil
	}
	raw, err := os.ReadFile(f.schema)
	if err != nil {
		return nil, fmt.Errorf("generate: --schema: %w", err)
	}
	g, err := constrain.Schema(raw)
	if err != nil {
		return nil, fmt.Errorf("generate: --schema %s: %w", f.schema, err)
	}
	return g, nil
}

// noteCut reports an answer that was cut off before it matched its grammar, and the first answer that ended at the
// longest text of the model.
func (w *writer) noteCut(r generate.Result) {
	if r.Finish != generate.FinishLength {
		return
	}
	full := len(r.IDs) < w.newTokens
	switch {
	case full && (w.grammar != nil || !w.full):
		w.full = true
		w.app.note("note     the answer is not whole: prompt and answer reached %d tokens, the most that the model takes (max_position_embeddings)", w.model.Config.MaxLength())
	case !full && w.grammar != nil:
		w.app.note("note     the answer is not whole: it ended at %d tokens (--max-new-tokens)", len(r.IDs))
	}
}
