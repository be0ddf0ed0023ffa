package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Fetch downloads a folder, "" for the tree's own files, and returns its local path: configurations and tokenizer,
// and the weights if requested. The contents of a local folder are not checked. Errors: ErrNotFound, ErrNoWeights,
// ErrOffline, and download errors.
func (t *Tree) Fetch(folder string, weights bool) (dir string, err error) {
	dir = filepath.Join(t.Dir, filepath.FromSlash(folder))
	if t.remote == nil {
		return dir, nil
	}
	if !t.known { // without the Hub only local files are available
		return dir, t.lacks(folder, wholePart(dir, weights))
	}
	names := below(t.files, folder)
	if len(names) == 0 {
		return "", fmt.Errorf("%w: %s", ErrNotFound, t.Path(folder))
	}
	needed, err := Needed(names, weights)
	if err != nil {
		return "", fmt.Errorf("%s: %w", t.Path(folder), err)
	}
	if err := t.fetchMissing(folder, needed); err != nil || !weights {
		return dir, err
	}
	more, err := shards(dir, needed[len(needed)-1])
	if err != nil {
		return "", fmt.Errorf("%s: %w", t.Path(folder), err)
	}
	return dir, t.fetchMissing(folder, more)
}

// FetchAll fetches all folders that the index of a pipeline lists. It skips components without a folder. Errors: the
// errors of Fetch, and ErrCorrupt for an invalid index.
func (t *Tree) FetchAll(weights bool) (dir string, err error) {
	if dir, err = t.Fetch("", false); err != nil {
		return "", err
	}
	raw, err := os.ReadFile(filepath.Join(dir, pipelineFile))
	if err != nil {
		return "", err
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrCorrupt, t.Path(pipelineFile), err)
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		has, known := t.Has(name)
		if !has && known || !safePath(name) || !strings.HasPrefix(string(parts[name]), "[") {
			continue
		}
		// A folder without config.json is a tokenizer or a scheduler.
		model := exists(filepath.Join(dir, name, configFile)) || slices.Contains(t.files, path.Join(name, configFile))
		if _, err := t.Fetch(name, weights && model); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// fetchMissing downloads the missing files of a folder.
func (t *Tree) fetchMissing(folder string, names []string) error {
	var early, last []string
	for _, name := range names {
		name := path.Join(folder, name)
		switch {
		case exists(filepath.Join(t.Dir, filepath.FromSlash(name))):
		case t.why != nil:
			return t.lacks(folder, fmt.Errorf("%s is missing", path.Base(name)))
		case !slices.Contains(t.files, name):
			return fmt.Errorf("%w: %s", ErrNotFound, t.Path(name))
		case slices.Contains(lastFiles, path.Base(name)):
			last = append(last, path.Join(t.inside, name))
		default:
			early = append(early, path.Join(t.inside, name))
		}
	}
	if len(early)+len(last) == 0 {
		if t.why == nil {
			_ = t.cache.setRef(t.remote.repo.revision, t.commit) // which a cache that cannot be written has, or never will
		}
		return nil
	}
	slices.SortFunc(last, func(a, b string) int {
		return slices.Index(lastFiles, path.Base(a)) - slices.Index(lastFiles, path.Base(b))
	})
	r := newRemote(t.remote.settings, t.remote.repo, t.options.Transport, stallTime)
	defer r.close()
	f := newFetcher(r, t.cache, t.commit, t.options)
	if err := f.all(t.ctx, early); err != nil {
		return err
	}
	for _, name := range last {
		if err := f.all(t.ctx, []string{name}); err != nil {
			return err
		}
	}
	return t.cache.setRef(t.remote.repo.revision, t.commit)
}

// lacks returns an error for something that is not in the cache, with the reason why it is not downloaded.
func (t *Tree) lacks(folder string, missing error) error {
	switch {
	case missing == nil:
		return nil
	case errors.Is(t.why, ErrOffline):
		return t.cache.notCached(t.remote.repo, fmt.Errorf("%s: %w", path.Join(t.inside, folder), missing))
	}
	return fmt.Errorf("%w; and the cache %s has not all of %s: %w", t.why, t.cache.root, t.Path(folder), missing)
}
