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
)

// Tree is the files of a model, folder by folder: what is on the Hub is downloaded when it
// is asked for, since a pipeline of diffusers has more parts than any command reads. It is
// not safe for concurrent use.
type Tree struct {
	// Dir is where the files lie, or will.
	Dir string

	ctx     context.Context // of Open, which downloads end with
	options Options
	remote  *remote // nil for a local folder
	cache   *cache
	inside  string // the folder of the repository that the tree is
	commit  string
	files   []string // of the tree, where they are known
	known   bool
	why     error // that nothing is downloaded
}

// Open finds the model called name, as Resolve does, and downloads nothing yet. The name
// may go on with the path of a folder: owner/name[@revision][/folder]. Downloads end with
// ctx. Errors: those of Resolve, and ErrNotFound for such a folder.
func Open(ctx context.Context, name string, o Options) (*Tree, error) {
	if here, err := isFolder(name); here || err != nil {
		return Local(name), err
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

// Local is the tree of a folder on the disk.
func Local(dir string) *Tree { return &Tree{Dir: dir, known: true} }

// File gives the path of a file of weights that is here, or that is downloaded along with
// the configuration beside it, if the name is owner/name[@revision]/path.safetensors.
// Errors: those of Open, and ErrName with fs.ErrNotExist.
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
	return filepath.Join(t.Dir, base), t.bring("", names)
}

func openTree(ctx context.Context, repo repository, inside string, o Options) (*Tree, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	t := &Tree{ctx: ctx, options: o, cache: cacheOf(s.cache, repo), inside: inside, remote: newRemote(s, repo, o.Transport)}
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

// list asks for the files of the tree.
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

// below are the names of the files in a folder and deeper, within it.
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

// String is the name of the model, the path of a local folder.
func (t *Tree) String() string {
	if t.remote == nil {
		return t.Dir
	}
	return path.Join(t.remote.repo.String(), t.inside)
}

// Path is what people call a folder of the tree.
func (t *Tree) Path(folder string) string {
	if t.remote == nil {
		return filepath.Join(t.Dir, folder)
	}
	return path.Join(t.String(), folder)
}

// Has reports whether there is a folder, downloaded or not. Where the Hub could not be
// asked it is not known that there is none.
func (t *Tree) Has(folder string) (has, known bool) {
	if t.remote == nil || !t.known {
		info, err := os.Stat(filepath.Join(t.Dir, folder))
		return err == nil && info.IsDir(), t.known
	}
	return len(below(t.files, folder)) > 0, true
}

// Here is the tree without the Hub: of what is not on the disk, Fetch fails with ErrOffline.
func (t *Tree) Here() *Tree {
	if t.remote == nil {
		return t
	}
	own := *t
	own.why = ErrOffline
	return &own
}
