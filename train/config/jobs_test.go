package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/train/config"
)

// TestJobs: a job has the keys beside jobs, and its own over them.
func TestJobs(t *testing.T) {
	c, err := config.Parse("jobs.yaml", []byte(`
model: m
output_dir: out
steps: 5
warmup_ratio: 0.5
learning_rate: 0.1
adapter: {r: 4, lora_alpha: 16}
jobs:
  - {name: a, data: {train: a.jsonl}, adapter: {r: 8}}
  - {name: b, data: {train: [b.jsonl, c.jsonl]}, epochs: 2, warmup_steps: 3, output_dir: elsewhere}
`), "schedule=cosine")
	require.NoError(t, err)
	require.Equal(t, 2, c.Jobs.Len())
	jobs, err := c.JobConfigs()
	require.NoError(t, err)
	a, b := jobs[0], jobs[1]
	require.Equal(t, []string{"a", "b"}, []string{a.Name, b.Name})
	require.Equal(t, []string{"out/a", "elsewhere"}, []string{a.OutputDir, b.OutputDir})
	require.Equal(t, []int{8, 4}, []int{a.Adapter.R, b.Adapter.R})
	require.Equal(t, []float64{16, 16}, []float64{a.Adapter.LoraAlpha, b.Adapter.LoraAlpha})
	require.Equal(t, []float64{0, 2}, []float64{a.Epochs, b.Epochs})
	require.Equal(t, []int{5, 0}, []int{a.Steps, b.Steps})
	require.Equal(t, []float64{0.5, 0}, []float64{a.WarmupRatio, b.WarmupRatio})
	require.Equal(t, config.Strings{"b.jsonl", "c.jsonl"}, b.Data.Train)
	require.Zero(t, a.Jobs.Len())
	for _, job := range jobs {
		require.Equal(t, "cosine", string(job.Schedule))
	}

	raw, err := c.YAML()
	require.NoError(t, err)
	again, err := config.Parse("again", raw)
	require.NoError(t, err)
	require.Equal(t, 2, again.Jobs.Len())
}

func TestJobErrors(t *testing.T) {
	for says, yaml := range map[string]string{
		`t:3: jobs[a].model: given in a job, expected beside jobs: it is the same for all`:                        "jobs:\n  - {name: a, model: x}",
		`t:3: jobs[a].adapter.r: found 0, expected a whole number ≥ 1 and ≤ 65536`:                                "jobs:\n  - {name: a, adapter: {r: 0}}",
		`t:3: jobs[a].lr: unknown key, here it is called "learning_rate"`:                                         "jobs:\n  - {name: a, lr: 1}",
		`t:3: jobs[0].name: missing, expected: the name of the job`:                                               "jobs:\n  - {seed: 1}",
		`t:3: jobs[0].name: found "../a", expected a name that a folder can have`:                                 "jobs:\n  - {name: ../a}",
		`t:4: jobs[a]: given twice, expected names that differ`:                                                   "jobs:\n  - {name: a}\n  - {name: a}",
		`t:4: jobs[b]: output_dir: output/./a is that of the job a, expected one of its own`:                      "jobs:\n  - {name: a}\n  - {name: b, output_dir: output/./a}",
		`t:2: jobs: found a list of 0, expected a list of mappings, each with a name and keys of its own`:         "jobs: []",
		`t:2: jobs: found "a", expected a list of mappings, each with a name and keys of its own`:                 "jobs: [a]",
		`t:2: jobs: found a mapping, expected a list of mappings, each with a name and keys of its own`:           "jobs: {a: {}}",
		`t:3: jobs[a].task: found embedding, expected language or preference, which jobs can learn`:               "task: embedding\njobs: [{name: a}]",
		`t:2: jobs[b].task: found classification, expected language or preference, which jobs can learn`:          "jobs: [{name: a}, {name: b, adapter: {task_type: SEQ_CLS}}]",
		`t:2: memory: given besides jobs, expected memory_limit: the plan of a single run alone is fitted`:        "memory: 1GiB\njobs: [{name: a}]",
		`t:2: resume: found "output/a/checkpoint-1" besides jobs, expected latest: each job goes on from its own`: "resume: output/a/checkpoint-1\njobs: [{name: a}]",
		`t:2: jobs[a].epochs: given besides steps, expected one of the two`:                                       "jobs: [{name: a, steps: 1, epochs: 1}]",
	} {
		_, err := config.Parse("t", []byte("model: m\n"+yaml), "data.train=d")
		require.ErrorContains(t, err, says)
		var e *config.Error
		require.ErrorAs(t, err, &e)
	}
	_, err := config.Parse("t", []byte("model: m\njobs: [{name: a}]"))
	require.ErrorContains(t, err, "jobs[a].data.train: missing, expected: Files to train on")
}
