// Package hub finds models: a folder is used as it is, and a name of the
// Hugging Face Hub is downloaded into the cache that all Hugging Face
// libraries share, in the layout of huggingface_hub (blobs, refs, snapshots),
// so that each finds what the other has downloaded.
//
// The same environment variables apply: HF_HOME, HF_HUB_CACHE, HF_ENDPOINT,
// HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE.
package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// Options say where to look and where to keep; the zero value follows the
// environment.
type Options struct {
	// Cache is the folder of the cache, in place of HF_HUB_CACHE.
	Cache string
	// Endpoint is the address of the Hub, in place of HF_ENDPOINT.
	Endpoint string
	// Token gives access to private and gated models, in place of HF_TOKEN and
	// the token file. It is sent to Endpoint alone, never to the host that a
	// download is redirected to.
	Token string
	// Offline uses the cache alone, as HF_HUB_OFFLINE=1 does.
	Offline bool
	// WithoutWeights leaves the weights out: configuration, tokenizer and chat
	// template are enough.
	WithoutWeights bool
	// Workers is the number of files downloaded at once; 0 means 4.
	Workers int
	// Progress, where set, is told how many of the total bytes of a file there
	// are. Several goroutines call it.
	Progress func(file string, done, total int64)
	// Warn, where set, is told when the Hub does not answer and the copy in the
	// cache is used although it may be out of date.
	Warn func(err error)
	// Transport makes the requests, in place of http.DefaultTransport.
	Transport http.RoundTripper
}

// Resolve returns the folder that holds the model called name: a local folder,
// or owner/name or owner/name@revision on the Hub, where revision is a branch,
// a tag or a commit (40 hex digits), by default main. A folder is preferred to
// a model on the Hub of the same name.
//
// Of a model on the Hub, what lorafuse can use is downloaded: configuration,
// tokenizer, chat template and safetensors weights. Files in the cache are not
// downloaded again, and interrupted downloads go on where they ended. Every
// file is compared with its hash. Without the Hub (offline, or it cannot be
// reached) the copy in the cache is used if it is whole.
func Resolve(ctx context.Context, name string, o Options) (dir string, err error) {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return name, nil
	case err == nil:
		return "", fmt.Errorf("%w: %s is a file, expected the folder of a model", ErrName, name)
	case !errors.Is(err, fs.ErrNotExist) && !isSyntax(err):
		return "", err
	}
	if _, linked := os.Lstat(name); linked == nil {
		return "", fmt.Errorf("%w: %s is a link that leads nowhere: %w", ErrName, name, err)
	}
	repo, err := parseName(name)
	if err != nil {
		return "", err
	}
	s, err := o.settings()
	if err != nil {
		return "", err
	}
	c := cacheOf(s.cache, repo)
	if s.offline {
		return c.cached(repo, o.WithoutWeights)
	}
	if isCommit(repo.revision) {
		// A commit does not change: nothing to ask, if all is there.
		if dir, err := c.cached(repo, o.WithoutWeights); err == nil && hasTokenizer(dir) {
			return dir, nil
		}
	}
	return resolveOnline(ctx, repo, c, s, o)
}

// isSyntax reports whether a name cannot be that of a file on this system, as
// one with ':' or '@' on Windows.
func isSyntax(err error) bool {
	p, ok := errors.AsType[*fs.PathError](err)
	return ok && !errors.Is(p.Err, fs.ErrPermission)
}

func resolveOnline(ctx context.Context, repo repository, c *cache, s settings, o Options) (string, error) {
	r := newRemote(s, repo, o.Transport)
	defer r.close()
	stale, staleErr := c.cached(repo, o.WithoutWeights)
	dir, err := fetchModel(ctx, r, c, o, staleErr == nil)
	if err == nil || ctx.Err() != nil || staleErr != nil || !mayUseStale(err) {
		return dir, err
	}
	if o.Warn != nil {
		o.Warn(fmt.Errorf("%w; using the copy of %s in the cache", err, repo))
	}
	return stale, nil
}

// mayUseStale reports whether the cache may stand in after err: not for what
// the Hub knows for certain, nor for what is wrong on this side.
func mayUseStale(err error) bool {
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrRedirect) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrGated) || errors.Is(err, ErrUnauthorized)
}

// hasTokenizer reports whether a snapshot has its tokenizer: a cache that
// another program filled may have only the files that it needed.
func hasTokenizer(dir string) bool {
	for _, name := range tokenizerFiles {
		if exists(filepath.Join(dir, name)) {
			return true
		}
	}
	return exists(filepath.Join(dir, adapterConfigFile))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A repository is a model on the Hub at a revision.
type repository struct {
	id       string // owner/name
	revision string
}

const defaultRevision = "main"

func (r repository) String() string {
	if r.revision == defaultRevision {
		return r.id
	}
	return r.id + "@" + r.revision
}

// parseName reads owner/name[@revision] by the rules of the Hub.
func parseName(name string) (repository, error) {
	id, revision, pinned := strings.Cut(name, "@")
	bad := func(why string) (repository, error) {
		return repository{}, fmt.Errorf("%w: %q is no folder here and %s; expected a folder or owner/name[@revision]", ErrName, name, why)
	}
	if !pinned {
		revision = defaultRevision
	}
	// The revision becomes a file name (refs/…) and a part of an address.
	if revision == "" || !filepath.IsLocal(filepath.FromSlash(revision)) || strings.ContainsAny(revision, "\\:\x00") {
		return bad("has a revision that cannot be one")
	}
	if len(id) > 96 || strings.Count(id, "/") > 1 {
		return bad("cannot be the name of a model on the Hub")
	}
	for part := range strings.SplitSeq(id, "/") {
		if part == "" || strings.Trim(part, "-.") != part || strings.ContainsFunc(part, notInName) {
			return bad("cannot be the name of a model on the Hub")
		}
	}
	if strings.Contains(id, "--") || strings.Contains(id, "..") || strings.HasSuffix(id, ".git") {
		return bad("cannot be the name of a model on the Hub")
	}
	return repository{id, revision}, nil
}

func notInName(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
}

// isCommit reports whether a revision is a commit hash.
func isCommit(revision string) bool { return len(revision) == 40 && isHex(revision) }

func isHex(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'f') })
}
