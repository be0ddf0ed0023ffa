package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// defaultWorkers is the number of concurrent downloads: enough to use most connections fully; the Hub limits larger
// numbers.
const defaultWorkers = 4

// fetchModel downloads the chosen files of the repository into the cache and returns their snapshot.
func fetchModel(ctx context.Context, r *remote, c *cache, o Options, haveStale bool) (string, error) {
	tries := r.tries
	if haveStale {
		tries = 1 // there is something to fall back to: do not let the user wait
	}
	commit, files, err := r.listing(ctx, tries)
	if err != nil {
		return "", err
	}
	if slices.Contains(files, pipelineFile) && !slices.Contains(files, configFile) {
		return "", isPipeline(r.repo)
	}
	f := newFetcher(r, c, commit, o)
	dir := c.snapshot(commit)
	small := chooseSmall(files)
	var weights, first []string
	if !o.WithoutWeights {
		if slices.Contains(files, indexFile) {
			first = []string{indexFile}
		} else if weights, err = chooseWeights(r.repo, files, nil); err != nil {
			return "", err
		}
	}
	// The configuration comes last: if it exists, all other files do.
	last := slices.DeleteFunc([]string{configFile, adapterConfigFile}, func(name string) bool { return !slices.Contains(small, name) })
	small = slices.DeleteFunc(small, func(name string) bool { return slices.Contains(last, name) })

	if err := f.all(ctx, append(first, small...)); err != nil {
		return "", err
	}
	if len(first) > 0 {
		index, err := os.ReadFile(filepath.Join(dir, indexFile))
		if err != nil {
			return "", err
		}
		if weights, err = chooseWeights(r.repo, files, index); err != nil {
			return "", err
		}
	}
	if err := f.all(ctx, weights); err != nil {
		return "", err
	}
	if err := f.all(ctx, last); err != nil {
		return "", err
	}
	if len(small)+len(last)+len(weights) == 0 {
		return "", fmt.Errorf("%w: %s has neither %s nor a tokenizer", ErrNotFound, r.repo, configFile)
	}
	if err := c.setRef(r.repo.revision, commit); err != nil && f.wrote {
		return "", err
	}
	return dir, nil
}

// fetcher downloads files of one commit.
type fetcher struct {
	*remote
	cache    *cache
	commit   string
	progress func(file string, done, total int64)
	workers  int
	wrote    bool // into the cache: so it can be written
}

func newFetcher(r *remote, c *cache, commit string, o Options) *fetcher {
	return &fetcher{remote: r, cache: c, commit: commit, progress: o.Progress, workers: cmp.Or(o.Workers, defaultWorkers)}
}

// all adds the missing files to the snapshot.
func (f *fetcher) all(ctx context.Context, names []string) error {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return exists(filepath.Join(f.cache.snapshot(f.commit), filepath.FromSlash(name)))
	})
	if len(names) == 0 {
		return nil
	}
	if err := f.cache.makeFolders(); err != nil {
		return err
	}
	f.wrote = true
	found := make([]remoteFile, len(names))
	err := f.each(ctx, len(names), func(ctx context.Context, i int) (err error) {
		found[i], err = f.describe(ctx, f.commit, names[i])
		return err
	})
	if err != nil {
		return err
	}
	if err := f.fits(found); err != nil {
		return err
	}
	return f.each(ctx, len(found), func(ctx context.Context, i int) error {
		return f.file(ctx, found[i])
	})
}

// fits compares the remaining download size with the free disk space.
func (f *fetcher) fits(files []remoteFile) error {
	var need int64
	for _, file := range files {
		if !exists(f.cache.blob(file.etag)) {
			need += file.size
			if part, err := os.Stat(f.cache.blob(file.etag) + incomplete); err == nil {
				need -= min(part.Size(), file.size)
			}
		}
	}
	free, _, ok := fsatomic.FreeSpace(f.cache.root)
	if ok && need > free {
		return fmt.Errorf("%w: %s needs %.1f GB more, %s has %.1f GB left; set HF_HOME to a folder on a larger disk",
			ErrNoSpace, f.repo, float64(need)/1e9, f.cache.root, float64(free)/1e9)
	}
	return nil
}

// each calls do for 0 … n-1 from a few goroutines. The first error stops the
// others and is returned.
func (f *fetcher) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan int)
	var wg sync.WaitGroup
	for range min(n, f.workers) {
		wg.Go(func() {
			for i := range jobs {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
feed:
	for i := range n {
		select {
		case jobs <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(jobs)
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// file adds one file to the snapshot.
func (f *fetcher) file(ctx context.Context, file remoteFile) error {
	// Without links, another process may remove the blob between the two steps, for its snapshot or for a file with
	// the same contents.
	var err error
	for range 3 {
		isNew := false
		if !exists(f.cache.blob(file.etag)) {
			if isNew, err = f.blob(ctx, file); err != nil {
				return err
			}
		}
		if err = f.cache.point(f.commit, file.name, file.etag, isNew); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err == nil && f.progress != nil {
		f.progress(file.name, file.size, file.size)
	}
	return err
}
