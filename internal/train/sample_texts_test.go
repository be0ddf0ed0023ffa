package train_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/task/text"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/train/config"
)

// samplesOf reads the samples of a step.
func samplesOf(t *testing.T, c *config.Config, step int) (all []text.Sample) {
	raw, err := os.ReadFile(filepath.Join(c.OutputDir, text.SamplesDir, fmt.Sprintf("step-%06d.jsonl", step)))
	require.NoError(t, err)
	for line := range bytes.Lines(raw) {
		var s text.Sample
		require.NoError(t, json.Unmarshal(line, &s))
		all = append(all, s)
	}
	return all
}

// TestSampleTexts: samples are the greedy texts of the adapter of their step, and change no bit
// of the run.
func TestSampleTexts(t *testing.T) {
	sets := []string{"steps=5", "learning_rate=0.05", "save_steps=1", "save_limit=0", "eval_steps=2"}
	plain := interruptibleRun(t, t.TempDir(), sets)
	s, err := trainUntil(t, context.Background(), plain)
	require.NoError(t, err)
	want := outcomeOf(t, plain, s)

	prompts := []string{"after 3 comes", "one two"}
	c := interruptibleRun(t, t.TempDir(), append(sets, "sample_every=2", "sample_tokens=9", "log.tensorboard=true", "sample_prompts=[after 3 comes, one two]"))
	var notes []string
	r, err := train.New(t.Context(), c, train.Observer{Note: func(text string) { notes = append(notes, text) }})
	require.NoError(t, err)
	require.Positive(t, r.Memory().Samples)
	s, err = r.Train(t.Context())
	require.NoError(t, err)
	r.Close()
	got := outcomeOf(t, c, s)
	require.Equal(t, want, got)
	require.NoFileExists(t, filepath.Join(c.OutputDir, text.SamplesDir, "step-000001.jsonl"))

	m, err := model.Open(tinyModel)
	require.NoError(t, err)
	defer m.Close()
	tok, err := tokenizer.Load(tinyModel)
	require.NoError(t, err)
	differ := false
	for step, adapter := range map[int]string{2: "checkpoint-2", 4: "checkpoint-4", 5: "adapter"} {
		state, err := lora.LoadState(filepath.Join(c.OutputDir, adapter), m, m.Config.ModelType, m.Modules())
		require.NoError(t, err)
		g, err := generate.New(t.Context(), testdevice.Open(t, backend.Options{}), m, state, generate.Options{})
		require.NoError(t, err)
		var all []text.Sample
		for _, p := range prompts {
			ids, err := tok.Encode(p, true)
			require.NoError(t, err)
			a, err := g.Generate(t.Context(), ids, generate.GenerateOptions{MaxNewTokens: 9, Decoder: tok.NewStream(true), EOS: tok.StopTokens(m.Config.EOS)}, nil)
			require.NoError(t, err)
			all = append(all, text.Sample{Step: step, Prompt: p, Text: a.Text, Finish: string(a.Finish)})
		}
		g.Close()
		require.Equal(t, all, samplesOf(t, c, step))
		require.Contains(t, notes, fmt.Sprintf("sample   %q → %q", prompts[0], all[0].Text))
		differ = differ || all[0].Text != samplesOf(t, c, 2)[0].Text
	}
	require.True(t, differ, "all steps have the same texts: nothing is tested")
	files, err := filepath.Glob(filepath.Join(c.OutputDir, "tensorboard", "*"))
	require.NoError(t, err)
	raw, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Equal(t, 3, bytes.Count(raw, []byte("**after 3 comes**")))

	again := *c
	again.Resume, again.OutputDir = "latest", filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.CopyFS(again.OutputDir, os.DirFS(c.OutputDir)))
	require.NoError(t, os.RemoveAll(filepath.Join(again.OutputDir, text.SamplesDir)))
	_, err = trainUntil(t, context.Background(), &again)
	require.NoError(t, err)
	require.Equal(t, samplesOf(t, c, 5), samplesOf(t, &again, 5))
}

// Without prompts of their own, samples continue the prompts of the first rows.
func TestSamplesOfRows(t *testing.T) {
	c := interruptibleRun(t, t.TempDir(), []string{"steps=2", "sample_every=2", "save_best=false"})
	c.Data.Eval = nil
	_, err := trainUntil(t, context.Background(), c)
	require.NoError(t, err)
	var prompts []string
	for _, s := range samplesOf(t, c, 2) {
		prompts = append(prompts, s.Prompt)
	}
	require.Len(t, prompts, 3)
	for i, p := range prompts {
		require.True(t, strings.HasSuffix(p, fmt.Sprintf("after %d comes", i)), p)
	}

	c = interruptibleRun(t, t.TempDir(), []string{"steps=2", "sample_every=2"}) // with texts to evaluate on
	_, err = trainUntil(t, context.Background(), c)
	require.NoError(t, err)
	require.Contains(t, "one two three", strings.TrimPrefix(samplesOf(t, c, 2)[0].Prompt, "<s>"))
}

// Samples of jobs are those of their runs alone.
func TestSamplesOfJobs(t *testing.T) {
	w := newWorkshop(t, tinyModel)
	w.base = append(w.base, "sample_every=2", "sample_tokens=5")
	c := w.together([]string{"seed: 1", "seed: 2, learning_rate: 0.1"})
	_, _, err := w.train(c)
	require.NoError(t, err)
	each, err := c.JobConfigs()
	require.NoError(t, err)
	for _, job := range each {
		alone := *job.Config
		alone.OutputDir = filepath.Join(w.dir, "alone", job.Name)
		_, err := trainUntil(t, context.Background(), &alone)
		require.NoError(t, err)
		for _, step := range []int{2, 4} {
			require.Equal(t, samplesOf(t, &alone, step), samplesOf(t, job.Config, step))
		}
		require.Equal(t, adapterSum(t, filepath.Join(alone.OutputDir, train.AdapterDir)), adapterSum(t, filepath.Join(job.OutputDir, train.AdapterDir)))
	}
}

func TestSampleErrors(t *testing.T) {
	for _, sets := range [][]string{
		{"sample_every=1", "sample_prompts=" + strings.Repeat("long ", 3000), "train: sample_prompts: too many tokens: a prompt has 9000 tokens, expected less than the 128 that the model takes"},
		{"sample_every=1", "sample_prompts=['']", "sample_prompts: found"},
		{"sample_prompts=x", "sample_prompts: given without sample_every"},
		{"sample_tokens=3", "sample_tokens: given without sample_every"},
		{"sample_every=1", "task=embedding", "sample_every: belongs to task: language, preference or diffusion"},
	} {
		says := sets[len(sets)-1]
		c := configure(t, t.TempDir(), countingRows(8))
		var err error
		for _, s := range slices.Delete(sets, len(sets)-1, len(sets)) {
			require.NoError(t, c.Set(s))
		}
		_, err = train.New(t.Context(), c, train.Observer{})
		require.ErrorContains(t, err, says)
	}
}
