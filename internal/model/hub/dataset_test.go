package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/testhub"
)

const card = `---
license: mit
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: [main/test-*.jsonl]
- config_name: extra
  data_files: extra/**
---
# A dataset
`

// datasets returns a Hub with datasets.
func datasets(t *testing.T) (*testhub.Hub, Options) {
	repo := func(files map[string]string) *testhub.Repo {
		return &testhub.Repo{Refs: map[string]string{"main": commitA, convertedRevision: commitB}, Trees: map[string]map[string]string{
			commitA: files, commitB: {"main/train/0000.parquet": "p", "main/partial-test/0000.parquet": "q"},
		}, Large: map[string]bool{"main/train-0.jsonl": true}}
	}
	gated := repo(map[string]string{"train.csv": "x"})
	gated.Token, gated.Gated = "secret", true
	h := testhub.New(t, map[string]*testhub.Repo{
		"datasets/acme/several": repo(map[string]string{"README.md": card, "main/train-0.jsonl": "a", "main/train-1.jsonl": "b", "main/test-0.jsonl": "c", "extra/deep/rows.csv": "d"}),
		"datasets/acme/plain":   repo(map[string]string{"README.md": "# words", "data/train.csv": "a", "data/validation.csv": "b", "dataset_infos.json": "{}"}),
		"datasets/acme/single":  repo(map[string]string{"rows.parquet": "a"}),
		"datasets/acme/script":  repo(map[string]string{"script.py": "import x", "rows.csv": "a"}),
		"datasets/acme/images":  repo(map[string]string{"a.png": "x"}),
		"datasets/acme/gated":   gated,
	})
	return h, Options{Cache: t.TempDir(), Endpoint: h.Server.URL}
}

// TestDataset: splits and configurations are found by the card, by names of files, or in the converted branch, and are
// used without the Hub later.
func TestDataset(t *testing.T) {
	h, o := datasets(t)
	for name, want := range map[string]string{
		"acme/several:main:train":                 "main/train-0.jsonl main/train-1.jsonl",
		"acme/several:main":                       "main/train-0.jsonl main/train-1.jsonl",
		"hf://datasets/acme/several:main:test":    "main/test-0.jsonl",
		"acme/several:extra":                      "extra/deep/rows.csv",
		"acme/plain":                              "data/train.csv",
		"acme/plain:validation":                   "data/validation.csv",
		"acme/single@main":                        "rows.parquet",
		"acme/script@refs/convert/parquet":        "main/train/0000.parquet",
		"acme/script@refs/convert/parquet:test":   "main/partial-test/0000.parquet",
		"acme/several@" + commitA + ":main:train": "main/train-0.jsonl main/train-1.jsonl",
	} {
		require.True(t, IsDataset(name), name)
		check := func(o Options) {
			files, err := Dataset(t.Context(), name, o)
			require.NoError(t, err, name)
			var names []string
			for _, f := range files {
				_, inside, found := strings.Cut(filepath.ToSlash(f), "/snapshots/")
				require.True(t, found)
				_, inside, _ = strings.Cut(inside, "/")
				names = append(names, inside)
				require.FileExists(t, f)
				require.Contains(t, f, "datasets--acme--")
			}
			assert.Equal(t, want, strings.Join(names, " "), name)
		}
		check(o)
		before := h.Total()
		offline := o
		offline.Offline = true
		check(offline)
		require.Equal(t, before, h.Total(), "offline asks nobody")
	}
	o.Offline = true
	_, err := Dataset(t.Context(), "acme/plain:test", o)
	require.ErrorIs(t, err, ErrDataset)
	require.NoError(t, os.RemoveAll(filepath.Join(o.Cache, "datasets--acme--plain", "snapshots", commitA, "data", "train.csv")))
	_, err = Dataset(t.Context(), "acme/plain", o)
	require.ErrorIs(t, err, ErrOffline, "a file is missing")
}

func TestDatasetErrors(t *testing.T) {
	_, o := datasets(t)
	for name, want := range map[string]string{
		"acme/several":           "acme/several has the configurations main or extra; name one, such as acme/several:main:train",
		"acme/several:man:train": `configuration: found "man", expected main or extra, did you mean "main"?`,
		"acme/plain:test":        `split: found "test", expected train or validation; name one, such as acme/plain:train`,
		"acme/script":            "acme/script needs its script script.py, which is not run: use the files that the Hub converted, acme/script@refs/convert/parquet",
		"acme/images":            "acme/images has no files of rows",
		"acme/gated":             "accept the terms of acme/gated at " + o.Endpoint + "/datasets/acme/gated, then set HF_TOKEN",
		"acme/none":              "if the dataset is private or gated, set HF_TOKEN",
		"acme/several:a:b:c":     "expected owner/name[@revision][:split]",
		"hf://none":              "expected owner/name[@revision][:split]",
	} {
		_, err := Dataset(t.Context(), name, o)
		require.Error(t, err, name)
		assert.ErrorContains(t, err, want)
	}
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("data", 0o700))
	for _, name := range []string{"data/train", "rows.jsonl", "acme/rows.csv", "rows", "a/b/c", "acme/x.safetensors", "../data/x"} {
		assert.False(t, IsDataset(name), name)
	}
}

// FuzzSplits: no card or name makes the choice of files panic.
func FuzzSplits(f *testing.F) {
	f.Add(card, "acme/several:main:train", "main/train-0.jsonl")
	f.Add("---\nconfigs: 3\n---", "a/b@c:d", "[x/train.csv")
	f.Fuzz(func(t *testing.T, card, name, file string) {
		repo, parts, err := parseDataset(name)
		if err != nil {
			return
		}
		files, err := chooseSplit(repo, []string{file, "train.csv", "main/test-1.jsonl"}, card, parts)
		if err == nil {
			require.NotEmpty(t, files)
		}
	})
}
