package hub

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	httpfiles "github.com/lorafuse/lorafuse/safetensors/remote"
)

var (
	// ErrName is the error for a name that is neither a folder nor a model name on the Hub, and for an invalid
	// endpoint address.
	ErrName = errors.New("not a model")
	// ErrNotFound is the error for a model or file that does not exist on the Hub, or that the Hub hides without the
	// right token.
	ErrNotFound = errors.New("not found on the Hub")
	// ErrRevision is the error for a branch, tag or commit that does not exist.
	ErrRevision = errors.New("no such revision")
	// ErrGated is the error for a model whose terms have not been accepted.
	ErrGated = errors.New("access is restricted")
	// ErrUnauthorized is the error for a token that the Hub does not accept.
	ErrUnauthorized = errors.New("access denied")
	// ErrOffline is the error for a model that is not in the cache when the Hub
	// may not be asked.
	ErrOffline = errors.New("not in the cache")
	// ErrUnreachable is the error for a Hub that does not answer, or that
	// answers with an error of its own.
	ErrUnreachable = errors.New("the Hub cannot be reached")
	// ErrRedirect is the error for an invalid redirect: to another scheme, from https to http, in a loop, or without
	// a target. It equals the error of package remote.
	ErrRedirect = httpfiles.ErrRedirect
	// ErrCorrupt is the error for contents that are not what they are said to be.
	ErrCorrupt = errors.New("the download is damaged")
	// ErrNoWeights is the error for a repository without usable weights.
	ErrNoWeights = errors.New("no safetensors weights")
	// ErrPipeline is the error for a diffusers pipeline in place of a model. Use Open to download the components of a
	// pipeline.
	ErrPipeline = errors.New("a pipeline of diffusers, expected a model of texts")
	// ErrDataset is the error for a dataset that cannot be read, or whose configuration or split must be named.
	ErrDataset = errors.New("not a dataset that is read")
	// ErrPush is the error for a push that the Hub refuses, and for one without a token.
	ErrPush = errors.New("cannot push")
	// ErrFolder is the error for a folder that cannot be pushed.
	ErrFolder = errors.New("not a folder to push")
	// ErrOccupied is the error for a repository with files that the pushed folder lacks.
	ErrOccupied = errors.New("the repository has other files")
	// ErrPublic is the error for a public repository where a private one was requested.
	ErrPublic = errors.New("the repository is public")
	// ErrMoved is the error for a branch that somebody else changed during a push.
	ErrMoved = errors.New("the branch has changed")
	// ErrNoSpace is the error for a cache on a disk too full for the download.
	ErrNoSpace = errors.New("not enough disk space")
)

// temporary marks an error after which it is worth trying again.
type temporary struct {
	err   error
	after time.Duration // that the server asked to wait
}

func (t *temporary) Error() string { return t.err.Error() }
func (t *temporary) Unwrap() error { return t.err }

// longestWait is the upper limit of the wait that a server may request.
const longestWait = time.Minute

// statusError returns the error for an unsuccessful response, with advice. file is "" if the
// repository itself was requested.
func (r *remote) statusError(resp *http.Response, file string) error {
	what := r.repo.String()
	if file != "" {
		what += ", file " + file
	}
	page := r.endpoint + "/" + r.repo.page()
	code, message := resp.Header.Get("X-Error-Code"), resp.Header.Get("X-Error-Message")
	said := resp.Status
	if message != "" {
		said += ": " + message
	}
	switch status := resp.StatusCode; {
	case status >= 300 && status < 400:
		if err := httpfiles.CheckLocation(resp); err != nil {
			return r.refused(err)
		}
	case code == "RevisionNotFound":
		return fmt.Errorf("%w: %s has no branch, tag or commit %q", ErrRevision, r.repo.id, r.repo.revision)
	case code == "EntryNotFound":
		return fmt.Errorf("%w: %s", ErrNotFound, what)
	case code == "GatedRepo":
		return fmt.Errorf("%w: accept the terms of %s at %s, then %s", ErrGated, r.repo.id, page, r.useToken())
	case code == "RepoNotFound" || status == http.StatusNotFound, status == http.StatusUnauthorized && r.token == "":
		return fmt.Errorf("%w: %s, and there is no such folder here either%s; check the name, or if the %s is private or gated, %s", ErrNotFound, what, didYouMean(r.repo.id), r.repo.kind(), r.useToken())
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s (%s): the access token is not valid; make a new one at %s/settings/tokens", ErrUnauthorized, what, said, r.endpoint)
	case status == http.StatusForbidden:
		return fmt.Errorf("%w: %s (%s): the access token may not read this %s; see %s", ErrUnauthorized, what, said, r.repo.kind(), page)
	case status == http.StatusRequestTimeout || status == http.StatusTooManyRequests ||
		status >= 500 && status != http.StatusNotImplemented:
		return &temporary{fmt.Errorf("%w: %s: %s", ErrUnreachable, what, said), retryAfter(resp)}
	}
	return fmt.Errorf("%w: %s: %s", ErrUnreachable, what, said)
}

// refused returns the error for a redirect that is not followed.
func (r *remote) refused(err error) error {
	return fmt.Errorf("%s: %w; check HF_ENDPOINT and the proxy", r.repo, err)
}

// useToken returns advice on how to send a token.
func (r *remote) useToken() string {
	if r.token != "" {
		return "use a token of the account that may read it (the one in use may not)"
	}
	return "set HF_TOKEN to a token from " + r.endpoint + "/settings/tokens"
}

// retryAfter returns the wait that the server requests, in seconds or as "…;t=seconds" of its rate limit.
func retryAfter(resp *http.Response) time.Duration {
	wait := strings.TrimSpace(resp.Header.Get("Retry-After"))
	if wait == "" {
		_, wait, _ = strings.Cut(resp.Header.Get("RateLimit"), ";t=")
	}
	seconds, err := strconv.Atoi(wait)
	if err != nil || seconds < 0 || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, longestWait)
}
