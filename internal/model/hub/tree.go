package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/gguf"
)

// Tree is the file tree of a model. Folders on the Hub are downloaded on demand, since a diffusers pipeline has more
// components than any command reads. It is not safe for concurrent use.
type Tree struct {
	// Dir is the local folder of the files, which need not be downloaded yet.
	Dir string

	ctx     context.Context // of Open, which downloads end with
	options Options
	remote  *remote // nil for a local folder
	cache   *cache
	inside  string // the folder of the repository that the tree is
	commit  string
	files   []string // of the tree, if known
	known   bool
	why     error // that nothing is downloaded
}

// Open finds the model called name, as Resolve does, without downloading anything. The name may end with the path of
// a folder: owner/name[@revision][/folder]. Downloads stop when ctx ends. Errors: the errors of Resolve, and
// ErrNotFound for a missing folder.
func Open(ctx context.Context, name string, o Options) (*Tree, error) {
	if here, err := isFolder(name); here || err != nil {
		return Local(name), err
	}
	if gguf.IsFile(name) && !exists(name) {
		return nil, noFile(name)
	}
	repo, inside, err := parsePath(name)
	if err != nil {
		return nil, err
	}
	if !repo.owned() {
		return nil, noFolder(name)
	}
	return openTree(ctx, repo, inside, o)
}

// Local returns the tree of a local folder.
func Local(dir string) *Tree { return &Tree{Dir: dir, known: true} }

// File returns the path of a local weight file. If the name is owner/name[@revision]/path.safetensors, the file is
// downloaded together with the configuration next to it. Errors: the errors of Open, and ErrName with fs.ErrNotExist.
func File(ctx context.Context, name string, o Options) (string, error) {
	_, err := os.Stat(name)
	if err == nil || !errors.Is(err, fs.ErrNotExist) && !isSyntax(err) {
		return name, err
	}
	repo, inside, err := parsePath(name)
	if err != nil || path.Ext(inside) != ".safetensors" {
		return "", fmt.Errorf("%w: %s: %w; expected a file, or owner/name[@revision]/file.safetensors of the Hub", ErrName, name, fs.ErrNotExist)
	}
	if !repo.owned() {
		return "", noFolder(name)
	}
	folder, base := path.Split(inside)
	t, err := openTree(ctx, repo, strings.TrimSuffix(folder, "/"), o)
	if err != nil {
		return "", err
	}
	names := []string{base}
	if slices.Contains(t.files, configFile) {
		names = append(names, configFile)
	}
	return filepath.Join(t.Dir, base), t.fetchMissing("", names)
}

func openTree(ctx context.Context, repo repository, inside string, o Options) (*Tree, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	t := &Tree{ctx: ctx, options: o, cache: cacheOf(s.cache, repo), inside: inside, remote: newRemote(s, repo, o.Transport, stallTime)}
	defer t.remote.close()
	there, missing := t.cache.commit(repo)
	if missing == nil && !exists(t.cache.snapshot(there)) {
		missing = fs.ErrNotExist
	}
	switch {
	case s.offline && missing != nil:
		return nil, t.cache.notCached(repo, missing)
	case s.offline:
		t.why = ErrOffline
	default:
		err := t.list(missing == nil)
		if err != nil && (missing != nil || ctx.Err() != nil || !mayUseStale(err)) {
			return nil, err
		}
		if t.why = err; err != nil && o.Warn != nil {
			o.Warn(fmt.Errorf("%w; using what the cache has of %s", err, repo))
		}
	}
	if t.why != nil {
		t.commit = there
	}
	t.Dir = filepath.Join(t.cache.snapshot(t.commit), filepath.FromSlash(inside))
	if t.known && len(t.files) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, path.Join(repo.String(), inside))
	}
	return t, nil
}

// list requests the list of files of the tree.
func (t *Tree) list(haveStale bool) error {
	tries := t.remote.tries
	if haveStale {
		tries = 1 // there is something to fall back to: do not let the user wait
	}
	commit, all, err := t.remote.listing(t.ctx, tries)
	if err != nil {
		return err
	}
	t.commit, t.known, t.files = commit, true, below(all, t.inside)
	return nil
}

// below returns the paths of all files below a folder, relative to it.
func below(files []string, folder string) (names []string) {
	if folder == "" {
		return files
	}
	for _, f := range files {
		if name, ok := strings.CutPrefix(f, folder+"/"); ok {
			names = append(names, name)
		}
	}
	return names
}

// String returns the name of the model or the path of a local folder.
func (t *Tree) String() string {
	if t.remote == nil {
		return t.Dir
	}
	return path.Join(t.remote.repo.String(), t.inside)
}

// Path returns the name of a folder of the tree for messages.
func (t *Tree) Path(folder string) string {
	if t.remote == nil {
		return filepath.Join(t.Dir, folder)
	}
	return path.Join(t.String(), folder)
}

// Has reports whether the folder exists, downloaded or not. known is false if the Hub could not be asked.
func (t *Tree) Has(folder string) (has, known bool) {
	if t.remote == nil || !t.known {
		info, err := os.Stat(filepath.Join(t.Dir, folder))
		return err == nil && info.IsDir(), t.known
	}
	return len(below(t.files, folder)) > 0, true
}

// CacheOnly returns the tree without the Hub: Fetch fails with ErrOffline for files that are not on the disk.
func (t *Tree) CacheOnly() *Tree {
	if t.remote == nil {
		return t
	}
	own := *t
	own.why = ErrOffline
	return &own
}
