package config

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSettings: a saved file has what was given and no more, and reads back as the same configuration.
func TestSettings(t *testing.T) {
	sets := []string{"model=acme/tiny", "data.train=[a.jsonl, 'b: c.csv']", "resume=latest", "adapter.target_modules=all-linear", "adapter.rank_pattern.q_proj=4",
		"learning_rate=3e-4", "memory=3GiB", "betas=[0.8, 0.99]", "precision=bf16", "schedule=cosine", "data.columns.prompt=question", "adapter.init_lora_weights=pissa_niter_4", "epochs=2.5"}
	c := Default()
	for _, s := range sets {
		require.NoError(t, c.Set(s))
	}
	require.NoError(t, c.Validate())
	text, err := c.Settings()
	require.NoError(t, err)
	require.NotContains(t, string(text), "resume")
	require.NotContains(t, string(text), "batch_size")
	back, err := Parse("saved", text)
	require.NoError(t, err, string(text))
	again, err := back.Settings()
	require.NoError(t, err)
	require.Equal(t, string(text), string(again))
	c.Resume, c.places, back.places = "", nil, nil
	require.Equal(t, c, back)
}

// TestCommented: each key of the task is there once, and comments become keys without changing their values.
func TestCommented(t *testing.T) {
	for _, task := range Tasks() {
		c := Default()
		require.NoError(t, c.Set("task="+task))
		require.NoError(t, c.Set("learning_rate=0.5"))
		text, err := c.Commented()
		require.NoError(t, err)
		back, err := Parse("init", text)
		require.NoError(t, err, string(text))
		require.Equal(t, 0.5, back.LearningRate)
		require.Equal(t, 8, back.BatchSize)
		back, err = Parse("all", regexp.MustCompile(`(?m)^( *)#([^ #])`).ReplaceAll(text, []byte("$1$2")))
		if err != nil {
			require.ErrorIs(t, err, ErrConflict) // as of epochs and steps
		} else {
			require.Equal(t, 0.5, back.LearningRate)
		}
		for _, k := range Keys() {
			if _, name := split(k.Path); k.of(c.Task) && k.Path != resumeKey && k.Path != jobsKey {
				require.Contains(t, string(text), name+":", task)
			}
		}
	}
}

func TestGivenValues(t *testing.T) {
	c, err := Parse("c.yaml", []byte(least+"adapter: {r: 4, rank_pattern: {q_proj: 2}}\n"), "betas=[0.8, 0.9]")
	require.NoError(t, err)
	values, err := c.GivenValues()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"model": "m", "data.train": "[t.jsonl]", "adapter.r": "4", "adapter.rank_pattern.q_proj": "2", "betas": "[0.8 0.9]"}, values)
}
