package remote

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Redirects that lead to no file are refused at once. The error contains both
// addresses and the reason, without secret parts.
func TestRefusedRedirections(t *testing.T) {
	to := func(location string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", location)
			w.WriteHeader(http.StatusFound)
		}
	}
	for name, c := range map[string]struct {
		answer   http.HandlerFunc
		to, why  string
		requests int
	}{
		"file":    {to("file:///etc/passwd"), "file:///etc/passwd", "expected http or https", 1},
		"ftp":     {to("ftp://user:secret@host/m"), "ftp://host/m", "expected http or https", 1},
		"data":    {to("data:" + strings.Repeat("x", 1000)), "data:" + strings.Repeat("x", 195) + "…", "expected http or https", 1},
		"no host": {to("http:///m"), "http:///m", "no host is named", 1},
		"itself":  {to("/m?token=secret"), "{server}/m", "they are a circle", 1},
		"circle": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, map[string]string{"/m": "/b", "/b": "/c", "/c": "/b"}[r.URL.Path], http.StatusTemporaryRedirect)
		}, "{server}/b", "they are a circle", 3},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path+"m", http.StatusMovedPermanently)
		}, "{server}/" + strings.Repeat("m", 12), "there were 10 before", 11},
		"nowhere": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSeeOther) }, "nowhere", "status 303 See Other comes without a Location", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, nil)
			s.before = func(_ int, w http.ResponseWriter, r *http.Request) bool { c.answer(w, r); return true }
			_, err := Open(t.Context(), s.URL+"/m?token=secret", quick)
			require.ErrorIs(t, err, ErrRedirect)
			assert.ErrorContains(t, err, "from "+s.URL+"/")
			assert.ErrorContains(t, err, " to "+strings.ReplaceAll(c.to, "{server}", s.URL)+": "+c.why)
			assert.NotContains(t, err.Error(), "secret")
			assert.Equal(t, c.requests, s.count())
		})
	}
}

// From https to http is refused, the other way is followed.
func TestRedirectionToLess(t *testing.T) {
	file, _ := model(t)
	less := serve(t, file)
	more := httptest.NewTLSServer(http.RedirectHandler(less.URL, http.StatusFound))
	t.Cleanup(more.Close)
	o := quick
	o.Client = more.Client()
	_, err := Open(t.Context(), more.URL, o)
	require.ErrorIs(t, err, ErrRedirect)
	assert.ErrorContains(t, err, fmt.Sprintf("from %s to %s: http is not as safe", more.URL, less.URL))
	assert.Zero(t, less.count())

	ask := func(address string) *http.Request {
		u, err := url.Parse(address)
		require.NoError(t, err)
		return &http.Request{URL: u}
	}
	assert.NoError(t, CheckRedirect(ask("https://a/m"), []*http.Request{ask("http://a/m")}))
}

// A client's own policy is left to it.
func TestOwnRedirectPolicy(t *testing.T) {
	s := serve(t, nil)
	s.before = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, "/n", http.StatusFound)
		return true
	}
	o := quick
	own := fmt.Errorf("not by me")
	o.Client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return own }}
	_, err := Open(t.Context(), s.URL, o)
	assert.ErrorIs(t, err, own)
	assert.Equal(t, 1, s.count())
}
