package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	httpfiles "github.com/lorafuse/lorafuse/safetensors/remote"
)

// remote asks the Hub about one repository.
type remote struct {
	settings
	repo       repository
	follow     *http.Client // follows redirects, for contents
	noRedirect *http.Client // does not leave the Hub; for file metadata
	close      func()

	tries int           // requests in a row that may fail
	pause time.Duration // before the second try; doubled for each further one
	stall time.Duration // without a byte, after which a connection is given up
}

// stallTime is how long a connection may be idle.
const stallTime = 30 * time.Second

// newRemote returns a remote that waits for the answer to a request.
func newRemote(s settings, repo repository, transport http.RoundTripper, answer time.Duration) *remote {
	r := &remote{settings: s, repo: repo, close: func() {}, tries: 5, pause: 500 * time.Millisecond, stall: stallTime}
	if transport == nil {
		transport = http.DefaultTransport
		if t, ok := transport.(*http.Transport); ok {
			t = t.Clone()
			t.ResponseHeaderTimeout = answer
			transport, r.close = t, t.CloseIdleConnections
		}
	}
	r.follow = &http.Client{Transport: transport, CheckRedirect: keepToken}
	r.noRedirect = &http.Client{Transport: transport, CheckRedirect: stayHere}
	return r
}

// keepToken removes the token from a request that was redirected to another host. (net/http itself would send it to
// subdomains.)
func keepToken(req *http.Request, via []*http.Request) error {
	if err := httpfiles.CheckRedirect(req, via); err != nil {
		return err
	}
	if !sameHost(req.URL, via[0].URL) {
		req.Header.Del("Authorization")
	}
	return nil
}

// stayHere follows redirects within the Hub, of renamed models and to its own cache. It follows no redirect to
// another host, and none that already has the metadata of the file.
func stayHere(req *http.Request, via []*http.Request) error {
	h := req.Response.Header
	described := h.Get("X-Linked-Etag") != "" && h.Get("X-Linked-Size") != ""
	if described || !sameHost(req.URL, via[0].URL) {
		return http.ErrUseLastResponse
	}
	return keepToken(req, via)
}

func sameHost(a, b *url.URL) bool { return a.Host == b.Host && a.Scheme == b.Scheme }

// again calls ask until it succeeds, fails for good or has failed too often.
func (r *remote) again(ctx context.Context, tries int, ask func() error) error {
	pause := r.pause
	for try := 1; ; try++ {
		err := ask()
		t, retry := errors.AsType[*temporary](err)
		if err == nil || !retry || try >= tries || ctx.Err() != nil {
			return err
		}
		if err := sleep(ctx, max(pause, t.after)); err != nil {
			return err
		}
		pause *= 2
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// send makes one request. The caller closes the body of a response.
func (r *remote) send(ctx context.Context, client *http.Client, method, address string, offset int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "lorafuse")
	// Request sizes and ranges of the file itself, not of a compressed encoding.
	req.Header.Set("Accept-Encoding", "identity")
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, r.networkError(ctx, err)
	}
	return resp, nil
}

// networkError returns a connection error, marked for retry unless the caller has given up or the redirect is
// invalid.
func (r *remote) networkError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The address of a download is a signed one: not for messages.
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, ErrRedirect) {
		return r.refused(err)
	}
	return &temporary{err: fmt.Errorf("%w: %s: %w", ErrUnreachable, r.endpoint, err)}
}

// largestListing bounds the answer about a repository.
const largestListing = 64 << 20

// listing requests the commit of the revision and its list of files.
func (r *remote) listing(ctx context.Context, tries int) (commit string, files []string, err error) {
	address := r.endpoint + "/api/" + r.repo.kind() + "s/" + r.repo.id + "/revision/" + url.PathEscape(r.repo.revision)
	var answer struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	err = r.again(ctx, tries, func() error {
		resp, err := r.send(ctx, r.follow, http.MethodGet, address, 0)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return r.statusError(resp, "")
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, largestListing))
		if err != nil {
			return r.networkError(ctx, err)
		}
		if err := json.Unmarshal(text, &answer); err != nil || !isCommit(answer.SHA) {
			return fmt.Errorf("%w: %s does not answer as a Hub does; check HF_ENDPOINT and the proxy", ErrUnreachable, r.endpoint)
		}
		return nil
	})
	if err != nil {
		return "", nil, err
	}
	for _, s := range answer.Siblings {
		if !safePath(s.Name) {
			return "", nil, fmt.Errorf("%w: %s lists a file %q", ErrCorrupt, r.repo, s.Name)
		}
		files = append(files, s.Name)
	}
	return answer.SHA, files, nil
}

// A remoteFile is the Hub's metadata of a file.
type remoteFile struct {
	name    string
	address string
	etag    string // the name of its blob: SHA-256 of a large file, git's SHA-1 of a small one
	size    int64
}

// describe requests the metadata of a file in a commit.
func (r *remote) describe(ctx context.Context, commit, name string) (remoteFile, error) {
	f := remoteFile{name: name, address: r.endpoint + "/" + r.repo.page() + "/resolve/" + commit + "/" + escapePath(name)}
	err := r.again(ctx, r.tries, func() error {
		resp, err := r.send(ctx, r.noRedirect, http.MethodHead, f.address, 0)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode >= 400 {
			return r.statusError(resp, name)
		}
		if err := undescribed(resp); err != nil {
			return r.refused(err)
		}
		return f.readHeader(resp, r.repo, commit)
	})
	return f, err
}

// undescribed returns the error for a response that redirects to another host and has neither etag nor size.
func undescribed(resp *http.Response) error {
	if resp.StatusCode < 300 {
		return nil
	}
	if err := httpfiles.CheckLocation(resp); err != nil {
		return err
	}
	if resp.Header.Get("X-Linked-Etag") == "" && resp.Header.Get("X-Linked-Size") == "" {
		return httpfiles.Refused(resp, "the answer has neither X-Linked-Etag nor X-Linked-Size")
	}
	return nil
}

// readHeader reads etag and size from the response to a HEAD request. For large files, which are stored elsewhere, it
// reads the X-Linked headers.
func (f *remoteFile) readHeader(resp *http.Response, repo repository, commit string) error {
	if c := resp.Header.Get("X-Repo-Commit"); c != "" && c != commit {
		return fmt.Errorf("%w: %s, file %s: the Hub answers for commit %s, expected %s", ErrCorrupt, repo, f.name, c, commit)
	}
	f.etag = normalizeEtag(resp.Header.Get("X-Linked-Etag"))
	if f.etag == "" {
		f.etag = normalizeEtag(resp.Header.Get("ETag"))
	}
	if f.etag == "" || len(f.etag) > 128 || strings.Trim(f.etag, ".") == "" || strings.ContainsFunc(f.etag, notInName) {
		return fmt.Errorf("%w: %s, file %s: its etag is %q, expected a hash", ErrCorrupt, repo, f.name, f.etag)
	}
	size := resp.Header.Get("X-Linked-Size")
	if size == "" && resp.StatusCode == http.StatusOK {
		size = resp.Header.Get("Content-Length")
	}
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%w: %s, file %s: its size is %q, expected a number", ErrCorrupt, repo, f.name, size)
	}
	f.size = n
	return nil
}

// normalizeEtag strips quotes and the weak mark from an etag.
func normalizeEtag(etag string) string {
	return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
}

// escapePath escapes each part of a path.
func escapePath(p string) string {
	parts := strings.Split(p, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}
