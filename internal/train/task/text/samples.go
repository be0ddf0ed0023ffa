package text

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// SamplesDir is the folder in output_dir with the texts generated during training.
const SamplesDir = "samples"

// Prompts taken from rows: their number, and the most tokens of a text that has no prompt.
const (
	samplesOfRows = 3
	firstTokens   = 16
)

// sampler generates texts during training.
type sampler struct {
	*texts
	prompts []samplePrompt
	host    *host.Host // once there is a planner
}

// samplePrompt is a prompt as text and as tokens.
type samplePrompt struct {
	text string
	ids  []int32
}

// Sample is a line of a file in SamplesDir.
type Sample struct {
	Step   int    `json:"step"`
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
	Finish string `json:"finish_reason"`
}

// addSampler adds the generation of samples to the material of a run, if it is requested.
func (t *texts) addSampler(m *train.Material) error {
	if t.cfg.SampleEvery == 0 {
		return nil
	}
	if t.tok == nil {
		return fmt.Errorf("train: sample_every: %w: files of tokens are read without a tokenizer, expected files of text", train.ErrTask)
	}
	if t.sampler == nil { // else micro-batches are cut
		t.sampler = &sampler{texts: t}
		if err := t.sampler.addPrompts(); err != nil {
			return err
		}
	}
	m.Reserve, m.After = t.sampler.reserve, t.sampler.sample
	return nil
}

// addPrompts reads the prompts of the configuration, or takes those of the first rows.
func (s *sampler) addPrompts() error {
	for _, text := range s.cfg.SamplePrompts {
		ids, err := s.encode(text)
		if err != nil {
			return fmt.Errorf("train: sample_prompts: %q: %w", text, err)
		}
		s.prompts = append(s.prompts, samplePrompt{text, ids})
	}
	if len(s.prompts) > 0 {
		return nil
	}
	set := s.set
	if s.evalSet != nil {
		set = s.evalSet
	}
	for i := range min(samplesOfRows, set.Len()) {
		var b data.Batch
		b.AddRow(set, i)
		ids := promptOf(b.Tokens()[:b.Starts[1]], b.Labels())
		text, err := s.tok.Decode(ids, false)
		if err != nil {
			return fmt.Errorf("train: sample_every: row %d: %w", i+1, err)
		}
		s.prompts = append(s.prompts, samplePrompt{text, slices.Clone(ids)})
	}
	return nil
}

// encode returns the tokens of a prompt: the beginning of the answer to a message of the user,
// or, without a chat template, the text.
func (s *sampler) encode(text string) ([]int32, error) {
	special := true
	if s.template != nil {
		rendered, err := s.template.Render([]chat.Message{{Role: "user", Content: text}}, chat.Options{AddGenerationPrompt: true})
		if err != nil {
			return nil, err
		}
		text, special = rendered, false // templates write special tokens themselves
	}
	ids, err := s.tok.Encode(text, special)
	if err == nil && len(ids) == 0 {
		err = generate.ErrToken
	}
	return ids, err
}

// promptOf returns the tokens of a text before its first answer. A text that is predicted from
// its beginning has no prompt: then it returns the first tokens.
func promptOf(ids, labels []int32) []int32 {
	for i := range ids {
		if labels[i] != data.Ignore && i > 0 {
			return ids[:i+1]
		}
		if labels[i] != data.Ignore {
			break
		}
	}
	return ids[:min(firstTokens, (len(ids)+1)/2)]
}

// reserve returns the device memory for samples, in bytes, next to the host's.
func (s *sampler) reserve(h *host.Host, adapter *engine.Slot) (int64, error) {
	s.host = h
	longest := 0
	for _, p := range s.prompts {
		longest = max(longest, len(p.ids))
	}
	g, err := generate.On(h, adapter, generate.Options{})
	if err != nil {
		return 0, fmt.Errorf("train: sample_every: %w", err)
	}
	if longest >= g.MaxLength() {
		return 0, fmt.Errorf("train: sample_prompts: %w: a prompt has %d tokens, expected less than the %d that the model takes (max_position_embeddings)", generate.ErrTooLong, longest, g.MaxLength())
	}
	return g.Need(min(longest+s.cfg.SampleTokens, g.MaxLength()))
}

// sample generates the texts if they are due after a step, prints and records them.
func (s *sampler) sample(ctx context.Context, done train.Done) error {
	if done.Step%s.cfg.SampleEvery != 0 && !done.Last {
		return nil
	}
	all, err := s.generate(ctx, done)
	if err != nil {
		return fmt.Errorf("train: samples of step %d: %w", done.Step, err)
	}
	var lines bytes.Buffer
	var shown strings.Builder
	for _, x := range all {
		s.Note("sample   %q → %q", shorten(x.Prompt), x.Text)
		fmt.Fprintf(&shown, "**%s**\n\n%s\n\n", x.Prompt, x.Text)
		line, err := json.Marshal(x)
		if err != nil {
			return fmt.Errorf("train: %w", err)
		}
		lines.Write(append(line, '\n'))
	}
	path := filepath.Join(s.cfg.OutputDir, SamplesDir, fmt.Sprintf("step-%06d.jsonl", done.Step))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	if err := fsatomic.Sweep(filepath.Dir(path)); err != nil { // temporary files of a killed run
		return fmt.Errorf("train: %w", err)
	}
	if err := fsatomic.WriteFile(path, lines.Bytes()); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return done.Text(events.Text{Step: int64(done.Step), Tag: SamplesDir, Text: shown.String()})
}

// generate generates the texts with the current adapter. The generator is closed afterwards, so
// that its memory is the run's again.
func (s *sampler) generate(ctx context.Context, done train.Done) (all []Sample, err error) {
	s.host.Lock()
	defer s.host.Unlock()
	g, err := generate.On(s.host, done.Adapter, generate.Options{})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	c := s.Model().Config
	for _, p := range s.prompts {
		g.Reset() // so that a text does not depend on the others
		r, err := g.Generate(ctx, p.ids, generate.GenerateOptions{
			MaxNewTokens: s.cfg.SampleTokens, Decoder: s.tok.NewStream(true), EOS: s.tok.StopTokens(c.EOS),
		}, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, Sample{done.Step, p.text, r.Text, string(r.Finish)})
	}
	return all, nil
}

// shorten returns the end of a long prompt.
func shorten(text string) string {
	const most = 60
	if r := []rune(text); len(r) > most {
		return "…" + string(r[len(r)-most:])
	}
	return text
}
