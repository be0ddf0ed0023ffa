package hub

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// cache is the part of the shared cache that belongs to one repository:
//
//	models--owner--name/
//	    blobs/<etag>                      the contents
//	    refs/<revision>                   the commit, as text
//	    snapshots/<commit>/<path>         symbolic link to ../../blobs/<etag>
//	.locks/models--owner--name/<etag>.lock
type cache struct {
	root   string // the whole cache
	folder string // models--owner--name
	// link makes a symbolic link; tests put in one that cannot.
	link func(old, new string) error
}

func cacheOf(root string, repo repository) *cache {
	return &cache{root: root, folder: repo.kind() + "s--" + strings.ReplaceAll(repo.id, "/", "--"), link: os.Symlink}
}

func (c *cache) path(parts ...string) string {
	return filepath.Join(append([]string{c.root, c.folder}, parts...)...)
}

func (c *cache) snapshot(commit string) string { return c.path("snapshots", commit) }
func (c *cache) blob(etag string) string       { return c.path("blobs", etag) }
func (c *cache) ref(revision string) string {
	return c.path("refs", filepath.FromSlash(revision))
}
func (c *cache) lock(etag string) string {
	return filepath.Join(c.root, ".locks", c.folder, etag+".lock")
}

// makeFolders makes the folders of the cache.
func (c *cache) makeFolders() error {
	for _, dir := range []string{c.path("blobs"), c.path("refs"), c.path("snapshots")} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	// Backup programs leave out a folder with this file in it; without it the
	// cache works as well.
	tag := filepath.Join(c.root, "CACHEDIR.TAG")
	if !exists(tag) {
		_ = fsatomic.WriteFile(tag, []byte("Signature: 8a477f597d28d172789f06886806bc55\n"+
			"# This file marks a cache folder, see https://bford.info/cachedir/\n"))
	}
	return nil
}

// commit returns the commit of a revision when the Hub was last asked.
func (c *cache) commit(repo repository) (string, error) {
	if isCommit(repo.revision) {
		return repo.revision, nil
	}
	text, err := os.ReadFile(c.ref(repo.revision))
	if err != nil {
		return "", err
	}
	if commit := strings.TrimSpace(string(text)); isCommit(commit) {
		return commit, nil
	}
	return "", fmt.Errorf("%s holds no commit", c.ref(repo.revision))
}

// cached returns the snapshot of a revision if the cache has all of it.
func (c *cache) cached(repo repository, withoutWeights bool) (string, error) {
	commit, err := c.commit(repo)
	if err != nil {
		return "", c.notCached(repo, err)
	}
	dir := c.snapshot(commit)
	if exists(filepath.Join(dir, pipelineFile)) && !exists(filepath.Join(dir, configFile)) {
		return "", isPipeline(repo)
	}
	if err := whole(dir, withoutWeights); err != nil {
		return "", c.notCached(repo, err)
	}
	return dir, nil
}

func (c *cache) notCached(repo repository, err error) error {
	why := err.Error()
	if errors.Is(err, fs.ErrNotExist) {
		why = "nothing of it is there"
	}
	return fmt.Errorf("%w: %s is not whole in the cache %s (%s), and the Hub may not be asked (HF_HUB_OFFLINE); download it once without that", ErrOffline, repo, c.root, why)
}

// whole returns an error that names what a snapshot lacks. The configuration is the last file to be linked, so an
// interrupted download is never mistaken for a complete one.
func whole(dir string, withoutWeights bool) error {
	if !exists(dir) {
		return fs.ErrNotExist
	}
	switch {
	case exists(filepath.Join(dir, configFile)):
	case exists(filepath.Join(dir, adapterConfigFile)):
	case withoutWeights && hasTokenizer(dir):
	default:
		return fmt.Errorf("%s is missing", configFile)
	}
	if withoutWeights {
		return nil
	}
	index, err := os.ReadFile(filepath.Join(dir, indexFile))
	if err == nil {
		shards, err := parseIndex(index)
		if err != nil {
			return fmt.Errorf("%s: %w", indexFile, err)
		}
		for _, s := range shards {
			if !exists(filepath.Join(dir, filepath.FromSlash(s))) {
				return fmt.Errorf("%s is missing", s)
			}
		}
		return nil
	}
	if weights, err := filepath.Glob(filepath.Join(dir, "*.safetensors")); err != nil || len(weights) == 0 {
		return fmt.Errorf("%s is missing", weightsFile)
	}
	return nil
}

// setRef records which commit a revision is. A cache that cannot be written
// has been filled before: nothing is lost.
func (c *cache) setRef(revision, commit string) error {
	if revision == commit {
		return nil
	}
	path := c.ref(revision)
	if text, err := os.ReadFile(path); err == nil && string(text) == commit {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return fsatomic.WriteFile(path, []byte(commit))
}

// point links the file of a snapshot to a blob. Without symbolic links, as usual on Windows, the snapshot gets the
// file itself, or a copy if other snapshots may use the blob.
func (c *cache) point(commit, file, etag string, isNew bool) error {
	pointer := filepath.Join(c.snapshot(commit), filepath.FromSlash(file))
	if exists(pointer) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(pointer), 0o777); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(pointer), c.blob(etag))
	if err != nil {
		return err
	}
	err = c.link(target, pointer)
	if errors.Is(err, fs.ErrExist) {
		if exists(pointer) { // another process was quicker
			return nil
		}
		os.Remove(pointer) // a link to a blob that somebody has removed
		err = c.link(target, pointer)
	}
	if err == nil || errors.Is(err, fs.ErrExist) && exists(pointer) {
		return nil
	}
	if isNew {
		return os.Rename(c.blob(etag), pointer)
	}
	return copyFile(c.blob(etag), pointer)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := fsatomic.Create(to)
	if err != nil {
		return err
	}
	defer out.Abort()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Commit()
}
