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
	// ErrName is the error for a name that is neither a folder nor that of a
	// model on the Hub, or for an endpoint that is no address.
	ErrName = errors.New("not a model")
	// ErrNotFound is the error for a model or a file that the Hub does not have,
	// or does not admit to have without the right token.
	ErrNotFound = errors.New("not found on the Hub")
	// ErrRevision is the error for a branch, tag or commit that is not there.
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
	// ErrRedirect is the error for an answer that sends a request on to where no
	// model can be: another scheme, from https to http, in a circle, nowhere. It
	// is that of package remote.
	ErrRedirect = httpfiles.ErrRedirect
	// ErrCorrupt is the error for contents that are not what they are said to be.
	ErrCorrupt = errors.New("the download is damaged")
	// ErrNoWeights is the error for a repository without usable weights.
	ErrNoWeights = errors.New("no safetensors weights")
	// ErrPipeline is the error for a pipeline of diffusers in the place of a model: its parts
	// are what Open fetches.
	ErrPipeline = errors.New("a pipeline of diffusers, expected a model of texts")
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

// longestWait bounds what a server may ask for.
const longestWait = time.Minute

// statusError says what a response that is no success means, and what to do
// about it. file is "" where the repository itself was asked for.
func (r *remote) statusError(resp *http.Response, file string) error {
	what := r.repo.String()
	if file != "" {
		what += ", file " + file
	}
	page := r.endpoint + "/" + r.repo.id
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
		return fmt.Errorf("%w: %s, and there is no such folder here either%s; check the name, or if the model is private or gated, %s", ErrNotFound, what, didYouMean(r.repo.id), r.useToken())
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s (%s): the access token is not valid; make a new one at %s/settings/tokens", ErrUnauthorized, what, said, r.endpoint)
	case status == http.StatusForbidden:
		return fmt.Errorf("%w: %s (%s): the access token may not read this model; see %s", ErrUnauthorized, what, said, page)
	case status == http.StatusRequestTimeout || status == http.StatusTooManyRequests ||
		status >= 500 && status != http.StatusNotImplemented:
		return &temporary{fmt.Errorf("%w: %s: %s", ErrUnreachable, what, said), retryAfter(resp)}
	}
	return fmt.Errorf("%w: %s: %s", ErrUnreachable, what, said)
}

// refused is the error of a redirection that is not followed.
func (r *remote) refused(err error) error {
	return fmt.Errorf("%s: %w; check HF_ENDPOINT and the proxy", r.repo, err)
}

// useToken says how to bring a token along.
func (r *remote) useToken() string {
	if r.token != "" {
		return "use a token of the account that may read it (the one in use may not)"
	}
	return "set HF_TOKEN to a token from " + r.endpoint + "/settings/tokens"
}

// retryAfter is how long the server asks to wait, in seconds or as
// "…;t=seconds" of its rate limit.
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
