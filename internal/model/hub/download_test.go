package hub

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/dev/testhub"
)

// fast is fetchModel with pauses that a test can wait for.
func fast(t *testing.T, o Options) (string, error) {
	t.Helper()
	s, err := o.settings()
	require.NoError(t, err)
	repo := repository{id: "acme/tiny", revision: "main"}
	r := newRemote(s, repo, o.Transport, stallTime)
	r.pause, r.stall = time.Millisecond, 100*time.Millisecond
	return fetchModel(t.Context(), r, cacheOf(s.cache, repo), o, false)
}

func blobPath(o Options) string {
	return filepath.Join(o.Cache, "models--acme--tiny", "blobs", testhub.SHA256(weights))
}

func TestBrokenConnections(t *testing.T) {
	for name, c := range map[string]struct {
		faults []testhub.Fault
		ranges []string
	}{
		"cut twice":       {[]testhub.Fault{{Cut: 100_000}, {Cut: 50_000}}, []string{"", "bytes=100000-", "bytes=150000-"}},
		"cut at the end":  {[]testhub.Fault{{Cut: len(weights) - 1}}, []string{"", fmt.Sprintf("bytes=%d-", len(weights)-1)}},
		"range ignored":   {[]testhub.Fault{{Cut: 1000}, {IgnoreRange: true}}, []string{"", "bytes=1000-"}},
		"silence":         {[]testhub.Fault{{Cut: 5000, Stall: true}}, []string{"", "bytes=5000-"}},
		"errors between":  {[]testhub.Fault{{Status: 500}, {Cut: 10}, {Status: 429}, {Status: 502}}, []string{"", "", "bytes=10-", "bytes=10-", "bytes=10-"}},
		"many short ones": {[]testhub.Fault{{Cut: 1}, {Cut: 1}, {Cut: 1}, {Cut: 1}, {Cut: 1}, {Cut: 1}, {Cut: 1}}, []string{"", "bytes=1-", "bytes=2-", "bytes=3-", "bytes=4-", "bytes=5-", "bytes=6-", "bytes=7-"}},
	} {
		t.Run(name, func(t *testing.T) {
			h, o := setup(t)
			h.Faults = c.faults
			dir, err := fast(t, o)
			require.NoError(t, err)
			assert.Equal(t, weights, read(t, filepath.Join(dir, "model.safetensors")))
			assert.Equal(t, c.ranges, h.Ranges())
			assert.NoFileExists(t, blobPath(o)+incomplete)
		})
	}
}

func TestGivingUpAndResuming(t *testing.T) {
	h, o := setup(t)
	h.Faults = []testhub.Fault{{Cut: 70_000}, {Status: 500}, {Status: 500}, {Status: 500}, {Status: 500}, {Status: 500}}
	_, err := fast(t, o)
	assert.ErrorIs(t, err, ErrUnreachable)
	assert.ErrorContains(t, err, "model.safetensors")
	assert.Equal(t, weights[:70_000], read(t, blobPath(o)+incomplete), "what there is, stays")
	repo := filepath.Join(o.Cache, "models--acme--tiny")
	assert.NoFileExists(t, filepath.Join(repo, "snapshots", commitA, "config.json"), "the configuration comes last")
	assert.NoFileExists(t, filepath.Join(repo, "refs", "main"))
	o.Offline = true
	_, err = Resolve(t.Context(), "acme/tiny@"+commitA, o)
	assert.ErrorIs(t, err, ErrOffline, "half a model is none")

	o.Offline = false
	n := len(h.Ranges())
	_, err = Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	assert.Equal(t, []string{"bytes=70000-"}, h.Ranges()[n:])
	assert.Equal(t, weights, read(t, blobPath(o)))
}

func TestDamagedDownloads(t *testing.T) {
	for name, c := range map[string]struct {
		faults []testhub.Fault
		want   string
	}{
		"other bytes":  {[]testhub.Fault{{Garbage: true}}, "its hash is " + testhub.SHA256(strings.Repeat("x", len(weights))) + ", expected " + testhub.SHA256(weights)},
		"longer":       {[]testhub.Fault{{Longer: true}}, "longer than the 262144 bytes announced"},
		"out of range": {[]testhub.Fault{{Cut: 9}, {Status: 416}}, "the server has no byte 9 of 262144"},
	} {
		t.Run(name, func(t *testing.T) {
			h, o := setup(t)
			h.Faults = c.faults
			_, err := fast(t, o)
			assert.ErrorIs(t, err, ErrCorrupt)
			assert.ErrorContains(t, err, "acme/tiny, file model.safetensors: ")
			assert.ErrorContains(t, err, c.want)
			assert.NoFileExists(t, blobPath(o))
			assert.NoFileExists(t, blobPath(o)+incomplete, "nobody resumes what is damaged")
			_, err = fast(t, o)
			assert.NoError(t, err, "the next one is well")
		})
	}
}

func TestWrongSize(t *testing.T) {
	h, o := setup(t)
	o.Transport = edit{o.Transport, func(resp *http.Response) {
		if resp.Header.Get("X-Linked-Size") != "" {
			resp.Header.Set("X-Linked-Size", "99")
		}
	}}
	_, err := fast(t, o)
	assert.ErrorIs(t, err, ErrCorrupt)
	assert.ErrorContains(t, err, "the server offers 262144 bytes, the Hub announced 99")
	_ = h
}

func TestDamagedPartStartsAgain(t *testing.T) {
	for name, part := range map[string]string{
		"other bytes": strings.Repeat("y", 1234), "whole but wrong": strings.Repeat("y", len(weights)),
		"too long": weights + "y", "right": weights[:77],
	} {
		t.Run(name, func(t *testing.T) {
			_, o := setup(t)
			require.NoError(t, os.MkdirAll(filepath.Dir(blobPath(o)), 0o777))
			require.NoError(t, os.WriteFile(blobPath(o)+incomplete, []byte(part), 0o666))
			dir, err := fast(t, o)
			require.NoError(t, err)
			assert.Equal(t, weights, read(t, filepath.Join(dir, "model.safetensors")))
		})
	}
}

// edit changes responses on their way.
type edit struct {
	http.RoundTripper
	change func(*http.Response)
}

func (e edit) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.RoundTripper.RoundTrip(r)
	if err == nil {
		e.change(resp)
	}
	return resp, err
}

func TestStrangeAnswers(t *testing.T) {
	for header, values := range map[string][]string{
		"X-Linked-Etag": {"../../../etc/passwd", "..", "a/b", strings.Repeat("f", 300)},
		"X-Linked-Size": {"-1", "many"},
		"X-Repo-Commit": {commitB},
	} {
		for _, value := range values {
			_, o := setup(t)
			o.Transport = edit{o.Transport, func(resp *http.Response) {
				if resp.Request.Method == http.MethodHead && resp.Header.Get("X-Linked-Etag") != "" {
					resp.Header.Set(header, value)
				}
			}}
			_, err := fast(t, o)
			assert.ErrorIs(t, err, ErrCorrupt, "%s: %s", header, value)
		}
	}
	for _, name := range []string{"../evil.json", "/etc/x", `a\b`, "a/../../b", "c:x"} {
		h, o := setup(t)
		tiny(h).Trees[commitA][name] = "x"
		_, err := fast(t, o)
		assert.ErrorIs(t, err, ErrCorrupt)
		assert.ErrorContains(t, err, fmt.Sprintf("lists a file %q", name))
	}
	h, o := setup(t)
	h.Answers = []int{200} // an empty page, as some proxies send
	_, err := fast(t, o)
	assert.ErrorIs(t, err, ErrUnreachable)
	assert.ErrorContains(t, err, "does not answer as a Hub does")
}

func TestServerErrorsAreRetried(t *testing.T) {
	h, o := setup(t)
	h.Answers = []int{503, 429, 500}
	_, err := fast(t, o)
	require.NoError(t, err)
	h.Answers = []int{503, 503, 503, 503, 503}
	o.Cache = t.TempDir()
	_, err = fast(t, o)
	assert.ErrorIs(t, err, ErrUnreachable)
}

// Many at once, in one process and by the lock as between processes: every
// file is downloaded once.
func TestConcurrentDownloads(t *testing.T) {
	h, o := setup(t)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			dir, err := Resolve(t.Context(), "acme/tiny", o)
			assert.NoError(t, err)
			assert.Equal(t, weights, read(t, filepath.Join(dir, "model.safetensors")))
		})
	}
	wg.Wait()
	assert.Len(t, h.Ranges(), 1)
	assert.Equal(t, 5, h.Requests(func(s testhub.Seen) bool { return s.Method == "GET" && strings.Contains(s.Path, "/resolve/") }), "five different small files")
}

func TestCancel(t *testing.T) {
	h, o := setup(t)
	h.Faults = []testhub.Fault{{Cut: 3000, Stall: true}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Progress = func(file string, done, _ int64) {
		if file == "model.safetensors" && done > 0 {
			cancel()
		}
	}
	start := time.Now()
	_, err := Resolve(ctx, "acme/tiny", o)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Less(t, time.Since(start), time.Minute)
	assert.Equal(t, weights[:3000], read(t, blobPath(o)+incomplete))
}

func TestDiskTooFull(t *testing.T) {
	_, o := setup(t)
	o.Transport = edit{o.Transport, func(resp *http.Response) {
		if resp.Header.Get("X-Linked-Size") != "" {
			resp.Header.Set("X-Linked-Size", "9000000000000000000")
		}
	}}
	_, err := fast(t, o)
	assert.ErrorIs(t, err, ErrNoSpace)
	assert.ErrorContains(t, err, "acme/tiny needs 9000000000.0 GB more")
	assert.ErrorContains(t, err, "set HF_HOME")
}

func TestRedirectedNames(t *testing.T) {
	h, o := setup(t)
	inner := h.Server.Config.Handler
	h.Server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "old/name") { // renamed: the Hub redirects to itself
			w.Header().Set("X-Linked-Etag", `"not yet"`)
			http.Redirect(w, r, strings.Replace(r.URL.Path, "old/name", "acme/tiny", 1), http.StatusTemporaryRedirect)
			return
		}
		inner.ServeHTTP(w, r)
	})
	tiny(h).Token = "hf_t"
	o.Token = "hf_t"
	dir, err := Resolve(t.Context(), "old/name", o)
	require.NoError(t, err)
	assert.Equal(t, weights, read(t, filepath.Join(dir, "model.safetensors")))
	assert.Contains(t, dir, "models--old--name")
}

// Where no model can be is not asked again, and not called out of reach.
func TestRefusedRedirections(t *testing.T) {
	for name, c := range map[string]struct {
		from, to, why string // of the Hub's answers; the path contains from
		requests      int
	}{
		"listing to a file":      {"/api/", "file:///etc/passwd", "expected http or https", 1},
		"listing in a circle":    {"/api/", "{here}", "they are a circle", 1},
		"listing to nowhere":     {"/api/", "", "comes without a Location", 1},
		"description to a file":  {"/config.json", "file:///x", "has neither X-Linked-Etag nor", 1},
		"description to nowhere": {"/config.json", "", "comes without a Location", 1},
		"description in circles": {"/config.json", "{here}", "they are a circle", 1},
		"contents to a file":     {"GET /acme/tiny/resolve/" + commitA + "/model.safe", "file:///x", "expected http or https", 1},
	} {
		t.Run(name, func(t *testing.T) {
			h, o := setup(t)
			inner, n := h.Server.Config.Handler, atomic.Int32{}
			h.Server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.Method+" "+r.URL.Path, c.from) {
					n.Add(1)
					if c.to != "" {
						w.Header().Set("Location", strings.ReplaceAll(c.to, "{here}", r.URL.Path))
					}
					w.WriteHeader(http.StatusFound)
					return
				}
				inner.ServeHTTP(w, r)
			})
			_, err := fast(t, o)
			require.ErrorIs(t, err, ErrRedirect)
			assert.NotErrorIs(t, err, ErrUnreachable)
			assert.ErrorContains(t, err, "acme/tiny: redirection refused: from "+h.Server.URL)
			assert.ErrorContains(t, err, c.why)
			assert.ErrorContains(t, err, "check HF_ENDPOINT")
			assert.EqualValues(t, c.requests, n.Load())
		})
	}
}

func TestHashes(t *testing.T) {
	assert.Equal(t, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", testhub.GitSHA(""), "git's well-known empty blob")
	assert.True(t, isHash(testhub.SHA256("")) && isHash(testhub.GitSHA("")))
	assert.False(t, isHash("5d41402abc4b2a76b9719d911017c592-3"), "a multipart etag of S3")
	assert.Equal(t, "abc", normalizeEtag(`W/"abc"`))
	assert.Equal(t, "abc", normalizeEtag(`"abc"`))
}

func TestMain(m *testing.M) {
	if o := os.Getenv("HUB_TEST_KILLED"); o != "" {
		killed(o)
	}
	goleak.VerifyTestMain(m)
}

// killed downloads until somebody ends this process.
func killed(spec string) {
	endpoint, cache, _ := strings.Cut(spec, " ")
	_, err := Resolve(context.Background(), "acme/tiny", Options{Endpoint: endpoint, Cache: cache})
	fmt.Println(err)
	os.Exit(3)
}
