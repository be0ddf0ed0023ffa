package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// dataFile matches the names of files with rows.
var dataFile = regexp.MustCompile(`(?i)\.(jsonl|ndjson|json|csv|tsv|tab|parquet|txt|text)(\.(gz|gzip|zst|zstd))?$`)

// convertedRevision is the branch with the Parquet files into which the Hub converts datasets.
const convertedRevision = "refs/convert/parquet"

// IsDataset reports whether name is that of a dataset on the Hub: owner/name[@revision][:split] or
// owner/name[@revision]:config:split, perhaps after hf://datasets/. A name is a path instead if it ends like a data file
// or begins with the name of a folder.
func IsDataset(name string) bool {
	if strings.HasPrefix(name, "hf://") {
		return true
	}
	repo, _, err := parseDataset(name)
	if err != nil || !repo.owned() || dataFile.MatchString(name) || path.Ext(name) == ".safetensors" {
		return false
	}
	owner, _, _ := strings.Cut(repo.id, "/")
	_, err = os.Stat(owner)
	return err != nil
}

// Dataset downloads the files of a split of a dataset into the shared cache and returns their paths; see [IsDataset] for
// its name. The default split is train. A dataset with one configuration, or with a default one, needs no name of it.
// Files in the cache are not downloaded again, and without the Hub those are used. Errors: the errors of Resolve, and
// ErrDataset for a dataset that needs a script, or whose configuration or split must be named.
func Dataset(ctx context.Context, name string, o Options) ([]string, error) {
	repo, parts, err := parseDataset(name)
	if err != nil {
		return nil, err
	}
	if !repo.owned() {
		return nil, fmt.Errorf("%w: %q: expected owner/name[@revision][:split] of the Hub", ErrDataset, name)
	}
	t, err := openTree(ctx, repo, "", o)
	if err != nil {
		return nil, err
	}
	if !t.known {
		if t.files, err = t.cache.listed(t.commit); err != nil {
			return nil, err
		}
	}
	card := ""
	if slices.Contains(t.files, cardFile) {
		if err := t.fetchMissing("", []string{cardFile}); err != nil {
			return nil, err
		}
		raw, err := os.ReadFile(filepath.Join(t.Dir, cardFile))
		if err != nil {
			return nil, err
		}
		card = string(raw)
	}
	files, err := chooseSplit(repo, t.files, card, parts)
	if err != nil {
		return nil, err
	}
	if err := t.fetchMissing("", files); err != nil {
		return nil, err
	}
	if t.known {
		t.cache.setListed(t.commit, t.files)
	}
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = filepath.Join(t.Dir, filepath.FromSlash(f))
	}
	return paths, nil
}

// DataFiles returns a function that returns the files of a dataset on the Hub, or none if a name is not that of a dataset.
func DataFiles(ctx context.Context, o Options) func(name string) ([]string, error) {
	return func(name string) ([]string, error) {
		if !IsDataset(name) {
			return nil, nil
		}
		return Dataset(ctx, name, o)
	}
}

// parseDataset parses the name of a dataset; parts are the configuration and the split, if they are given.
func parseDataset(name string) (repo repository, parts []string, err error) {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "hf://"), "datasets/")
	id, rest, given := strings.Cut(name, ":")
	if given {
		parts = strings.Split(rest, ":")
	}
	if len(parts) > 2 || slices.Contains(parts, "") {
		return repo, nil, fmt.Errorf("%w: %q: expected owner/name[@revision][:split] or owner/name[@revision]:config:split", ErrDataset, name)
	}
	repo, err = parseName(id)
	repo.dataset = true
	return repo, parts, err
}

// listing returns the path of the file that lists the files of a commit, for use without the Hub. Other programs ignore its folder.
func (c *cache) listing(commit string) string { return c.path("lorafuse", commit+".json") }

// setListed records the files of a commit. It is not needed while the Hub can be asked.
func (c *cache) setListed(commit string, files []string) {
	path := c.listing(commit)
	if exists(path) || os.MkdirAll(filepath.Dir(path), 0o777) != nil {
		return
	}
	if raw, err := json.Marshal(files); err == nil {
		_ = fsatomic.WriteFile(path, raw)
	}
}

// listed returns the files of a commit: all if they have been recorded, or else the files in the cache.
func (c *cache) listed(commit string) (files []string, err error) {
	if raw, err := os.ReadFile(c.listing(commit)); err == nil && json.Unmarshal(raw, &files) == nil {
		return files, nil
	}
	root := os.DirFS(c.snapshot(commit))
	err = fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, name)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return files, err
}
