package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// shardWriter replaces the model in a folder.
type shardWriter struct {
	dir     string
	options options
	entries [][]Entry      // by shard
	names   []string       // by shard
	shards  []*pendingFile // in the order of names
	index   *pendingFile   // nil for a single file
	spares  []string       // interim names of the shards while they replace others
	stale   *regexp.Regexp // names of shards, old and new
}

func newShardWriter(dir string, shards [][]Entry, o options) *shardWriter {
	w := &shardWriter{dir: dir, options: o, entries: shards, stale: o.name.shards()}
	for i := range shards {
		name := o.name.file()
		if len(shards) > 1 {
			name = o.name.shard(i+1, len(shards))
		}
		w.names = append(w.names, name)
	}
	return w
}

// stage writes all files without naming them.
func (w *shardWriter) stage(metadata map[string]string) (err error) {
	if len(w.names) > 1 {
		if w.index, err = w.stageIndex(w.names); err != nil {
			return err
		}
	}
	for i, entries := range w.entries {
		path := filepath.Join(w.dir, w.names[i])
		l, err := newLayout(entries, metadata)
		if err != nil {
			return withPath(err, path)
		}
		p, err := l.stage(path, entries, w.options.durable)
		if err != nil {
			return err
		}
		w.shards = append(w.shards, p)
	}
	return nil
}

// stageIndex writes an index of the shards under the given names.
func (w *shardWriter) stageIndex(names []string) (*pendingFile, error) {
	path := filepath.Join(w.dir, w.options.name.index())
	text, err := encodeIndex(w.entries, names, w.options.name.indexStyle())
	if err != nil {
		return nil, withPath(err, path)
	}
	return stage(path, int64(len(text)), w.options.durable, func(f *fileWriter) error {
		return errors.Join(f.keep(text), f.flush())
	})
}

func (w *shardWriter) discard() {
	for _, p := range w.shards {
		p.discard()
	}
	if w.index != nil {
		w.index.discard()
	}
}

// commit replaces the old model with the new one. The file or index that makes
// the new model visible is renamed last. After that, files that would hide it
// or belong to the old model are removed. So a reader finds either all of the
// old model or all of the new one, whichever of file and index it tries first.
func (w *shardWriter) commit() error {
	defer w.discard() // files not named because of an error
	if w.index != nil && w.replacesShards() {
		return w.commitOver()
	}
	if err := w.commitFiles(w.shards...); err != nil {
		return err
	}
	if w.index != nil {
		if err := w.commitFiles(w.index); err != nil {
			return err
		}
	}
	return w.removeStale()
}

// replacesShards reports whether the names of the new shards are in use, most
// probably by the old model.
func (w *shardWriter) replacesShards() bool {
	return slices.ContainsFunc(w.names, func(name string) bool {
		_, err := os.Lstat(filepath.Join(w.dir, name))
		return err == nil
	})
}

// commitOver is the commit for new shards that replace old ones of the same
// name. It first gives the new shards interim names and replaces the old index
// with one that refers to those names, in one step. After the new shards have
// replaced the old ones, it replaces the interim index with the final one.
func (w *shardWriter) commitOver() error {
	interim, err := w.stageInterim()
	if err != nil {
		return w.commitWithoutLinks()
	}
	if err := interim.commit(); err != nil {
		return errors.Join(err, w.removeSpares())
	}
	w.step()
	if err := w.sync(filepath.Dir(interim.path)); err != nil {
		return err // the folder now holds the complete new model under interim names
	}
	if err := w.commitFiles(w.shards...); err != nil {
		return err
	}
	if err := w.commitFiles(w.index); err != nil {
		return err
	}
	return w.removeStale() // remove the interim names too
}

// stageInterim gives the new shards interim names and writes an index of these.
// On failure it removes the interim names.
func (w *shardWriter) stageInterim() (*pendingFile, error) {
	tag := fmt.Sprintf(".%016x", rand.Uint64())
	for i, p := range w.shards {
		name := w.names[i][:len(w.names[i])-len(shardExtension)] + tag + shardExtension
		if err := p.link(filepath.Join(w.dir, name)); err != nil {
			return nil, errors.Join(err, w.removeSpares())
		}
		w.spares = append(w.spares, name)
		w.step()
	}
	interim, err := w.stageIndex(w.spares)
	if err == nil {
		if err = w.sync(w.dir); err != nil {
			interim.discard()
		}
	}
	if err != nil {
		return nil, errors.Join(err, w.removeSpares())
	}
	return interim, nil
}

func (w *shardWriter) removeSpares() error { return w.remove(w.spares...) }

// commitWithoutLinks hides the old model before replacing it.
func (w *shardWriter) commitWithoutLinks() error {
	n := w.options.name
	if n.indexFirst() { // an even older model must not become visible when the index is gone
		if err := w.remove(n.file()); err != nil {
			return err
		}
	}
	if err := w.removeIndexes(); err != nil {
		return err
	}
	if err := w.sync(w.dir); err != nil {
		return err
	}
	if err := w.commitFiles(w.shards...); err != nil {
		return err
	}
	if err := w.commitFiles(w.index); err != nil {
		return err
	}
	return w.removeStale()
}

// commitFiles renames files to their final names.
func (w *shardWriter) commitFiles(files ...*pendingFile) error {
	var folders []string
	for _, p := range files {
		if err := p.commit(); err != nil {
			return err
		}
		folders = append(folders, filepath.Dir(p.path))
		w.step()
	}
	slices.Sort(folders)
	return w.sync(slices.Compact(folders)...)
}

// sync flushes the folders to disk, so that later changes do not get there
// first.
func (w *shardWriter) sync(folders ...string) error {
	if !w.options.durable {
		return nil
	}
	for _, dir := range folders {
		if err := syncFolder(dir); err != nil {
			return fmt.Errorf("safetensors: %w", err)
		}
	}
	return nil
}

// removeStale removes the rest of the old model, its index first, and files
// left behind by dead writers.
func (w *shardWriter) removeStale() error {
	var errs []error
	if w.index == nil {
		errs = append(errs, w.removeIndexes())
	} else {
		errs = append(errs, w.remove(w.options.name.file()))
	}
	files, err := os.ReadDir(w.dir)
	if err != nil {
		errs = append(errs, fmt.Errorf("safetensors: %w", err))
	}
	for _, f := range files {
		name := f.Name()
		target, temporary := temporaryTarget(name)
		switch {
		case temporary && w.isOurs(target):
			removeAbandoned(filepath.Join(w.dir, name))
		case !slices.Contains(w.names, name) && (w.stale.MatchString(name) || w.isOtherIndex(name)):
			errs = append(errs, w.remove(name))
		}
	}
	return errors.Join(append(errs, w.sync(w.dir))...)
}

func (w *shardWriter) isOurs(name string) bool {
	n := w.options.name
	return name == n.file() || slices.Contains(n.indexes(), name) || w.stale.MatchString(name)
}

// isOtherIndex reports whether name is an index name that other libraries use.
func (w *shardWriter) isOtherIndex(name string) bool {
	return slices.Contains(w.options.name.indexes()[1:], name)
}

// removeIndexes removes the index under all its names; the name that readers
// try first is removed last.
func (w *shardWriter) removeIndexes() error {
	names := w.options.name.indexes()
	slices.Reverse(names)
	return w.remove(names...)
}

func (w *shardWriter) remove(names ...string) error {
	for _, name := range names {
		err := os.Remove(filepath.Join(w.dir, name))
		switch {
		case err == nil:
			w.step()
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("safetensors: remove file of the old model: %w", err)
		}
	}
	return nil
}

func (w *shardWriter) step() {
	if w.options.step != nil {
		w.options.step()
	}
}
