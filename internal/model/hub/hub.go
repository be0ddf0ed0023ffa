// Package hub finds and downloads models. [Resolve] returns a local folder unchanged, and downloads a model of the
// Hugging Face Hub into the cache that all Hugging Face libraries share, in the layout of huggingface_hub (blobs,
// refs, snapshots). [Open] downloads the components of a diffusers pipeline one by one.
//
// The usual environment variables apply: HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE.
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

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/model/llamacpp"
)

// Options configure the Hub and the cache. The zero value follows the environment.
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
	// Warn, if not nil, is called when the Hub does not answer and the possibly outdated copy in the cache is used.
	Warn func(err error)
	// Transport makes the requests, in place of http.DefaultTransport.
	Transport http.RoundTripper
}

// Resolve returns the folder of the model called name. The name is a local folder, or owner/name or
// owner/name@revision on the Hub, where revision is a branch, a tag or a commit (40 hex digits); the default is main.
// A local folder takes precedence over a model on the Hub of the same name. For a GGUF file, Resolve returns a folder
// of the user's cache that refers to it; see llamacpp.Folder.
//
// From the Hub it downloads configuration, tokenizer, chat template and safetensors weights. Files in the cache are
// not downloaded again, and interrupted downloads resume. Every file is verified by its hash. If the Hub cannot be
// used (offline or unreachable), Resolve returns the copy in the cache if it is complete.
func Resolve(ctx context.Context, name string, o Options) (dir string, err error) {
	if gguf.IsFile(name) {
		if !exists(name) {
			return "", noFile(name)
		}
		return llamacpp.Folder(name)
	}
	if here, err := isFolder(name); here {
		return name, nil
	} else if err != nil {
		return "", err
	}
	if isPath(name) {
		return "", fmt.Errorf("%w: %s: no such file or folder%s", ErrName, name, didYouMean(name))
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
	if !repo.owned() { // of the first models; the Hub is not asked, since this is most probably a mistyped folder
		if dir, err := c.cached(repo, o.WithoutWeights); err == nil {
			return dir, nil
		}
		return "", noFolder(name)
	}
	if s.offline {
		return c.cached(repo, o.WithoutWeights)
	}
	if isCommit(repo.revision) {
		// A commit is immutable, so the Hub is not asked if all files are cached.
		if dir, err := c.cached(repo, o.WithoutWeights); err == nil && hasTokenizer(dir) {
			return dir, nil
		}
	}
	return resolveOnline(ctx, repo, c, s, o)
}

// isFolder reports whether name is a folder on the disk. Errors: ErrName if it is a file, and errors of the file
// system.
func isFolder(name string) (bool, error) {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return true, nil
	case err == nil:
		return false, fmt.Errorf("%w: %s is a file, expected the folder of a model", ErrName, name)
	case !errors.Is(err, fs.ErrNotExist) && !isSyntax(err):
		return false, err
	}
	if _, linked := os.Lstat(name); linked == nil {
		return false, fmt.Errorf("%w: %s is a link that leads nowhere: %w", ErrName, name, err)
	}
	return false, nil
}

// isSyntax reports whether a name cannot be that of a file on this system, as
// one with ':' or '@' on Windows.
func isSyntax(err error) bool {
	p, ok := errors.AsType[*fs.PathError](err)
	return ok && !errors.Is(p.Err, fs.ErrPermission)
}

// noFile reports a missing GGUF file, which is no model on the Hub.
func noFile(name string) error { return fmt.Errorf("%w: %s: no such file", ErrName, name) }

// isPath reports whether a name is a path and not the name of a model on the Hub. A path is absolute, begins with a dot
// or a tilde, or is in a folder that exists.
func isPath(name string) bool {
	if filepath.IsAbs(name) || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "~") || filepath.Separator != '/' && strings.ContainsRune(name, filepath.Separator) {
		return true
	}
	first, _, ok := strings.Cut(name, "/")
	info, err := os.Stat(first)
	return ok && (strings.HasSuffix(name, "/") || err == nil && info.IsDir())
}

func resolveOnline(ctx context.Context, repo repository, c *cache, s settings, o Options) (string, error) {
	r := newRemote(s, repo, o.Transport, stallTime)
	defer r.close()
	stale, staleErr := c.cached(repo, o.WithoutWeights)
	dir, err := fetchModel(ctx, r, c, o, staleErr == nil)
	if err == nil || ctx.Err() != nil || staleErr != nil || !mayUseStale(err) {
		if errors.Is(err, ErrUnreachable) {
			err = fmt.Errorf("%w (and there is no folder %q%s)", err, repo.id, didYouMean(repo.id))
		}
		return dir, err
	}
	if o.Warn != nil {
		o.Warn(fmt.Errorf("%w; using the copy of %s in the cache", err, repo))
	}
	return stale, nil
}

// mayUseStale reports whether the cached copy may be used after err: not if the Hub gave a definite answer, nor if
// the error is local.
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
