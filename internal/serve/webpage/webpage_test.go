package webpage_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/webpage"
)

func mux() *http.ServeMux {
	m := http.NewServeMux()
	for pattern, h := range webpage.Routes() {
		m.Handle(pattern, h)
	}
	return m
}

func get(t *testing.T, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	mux().ServeHTTP(w, r)
	return w
}

// addresses are those that the page names, of its own files.
func addresses(t *testing.T) []string {
	t.Helper()
	found := regexp.MustCompile(`(?:href|src)="(page/[^"]+)"`).FindAllStringSubmatch(get(t, "GET", "/").Body.String(), -1)
	var all []string
	for _, m := range found {
		all = append(all, "/"+m[1])
	}
	require.Len(t, all, 3)
	return all
}

func TestPage(t *testing.T) {
	w := get(t, "GET", "/")
	require.Equal(t, 200, w.Code)
	assert.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	assert.Equal(t, "no-cache", w.Header().Get("Cache-Control"))
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	assert.Contains(t, w.Body.String(), "<title>lorafuse</title>")
	assert.NotContains(t, w.Body.String(), "assets/")

	tag := w.Header().Get("ETag")
	assert.Regexp(t, `^"[0-9a-f]{32}"$`, tag)
	again := get(t, "GET", "/", "If-None-Match", tag)
	assert.Equal(t, 304, again.Code)
	assert.Empty(t, again.Body.Bytes())
	assert.Equal(t, 200, get(t, "GET", "/", "If-None-Match", `"other"`).Code)
	assert.Empty(t, get(t, "HEAD", "/").Body.Bytes())
}

func TestFiles(t *testing.T) {
	kinds := map[string]string{"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
	tags := map[string]bool{}
	for _, path := range addresses(t) {
		w := get(t, "GET", path)
		require.Equal(t, 200, w.Code, path)
		assert.Equal(t, kinds[path[strings.LastIndex(path, ".")+1:]], w.Header().Get("Content-Type"))
		assert.Equal(t, "public, max-age=31536000, immutable", w.Header().Get("Cache-Control"))
		tags[w.Header().Get("ETag")] = true
		assert.Equal(t, 304, get(t, "GET", path, "If-None-Match", w.Header().Get("ETag")).Code)
		assert.Equal(t, 405, get(t, "POST", path).Code)
	}
	assert.Len(t, tags, 3)
	for _, path := range []string{"/page/", "/page/app.js", "/page/0000000000000000/app.js", "/index.html", "/page/../webpage.go", "/v1/models"} {
		w := get(t, "GET", path)
		assert.NotEqual(t, 200, w.Code, path)
		assert.Empty(t, w.Header().Get("Content-Security-Policy"), path)
	}
}

func TestPolicy(t *testing.T) {
	for _, path := range append(addresses(t), "/") {
		policy := get(t, "GET", path).Header().Get("Content-Security-Policy")
		parts := strings.Split(policy, "; ")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:", "frame-ancestors 'none'"} {
			assert.Contains(t, parts, want)
		}
		assert.NotContains(t, policy, "unsafe")
		assert.NotContains(t, policy, "*")
		assert.NotContains(t, policy, "http")
	}
}

// forbidden is what would load from elsewhere, or run or show text as if it were code.
var forbidden = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(https?|wss?)://`),
	regexp.MustCompile(`["'(]//\w`),
	regexp.MustCompile(`(?i)\b(inner|outer)HTML\b|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|setHTML`),
	regexp.MustCompile(`\beval\(|\bnew Function\b|(setTimeout|setInterval)\(['"` + "`" + `]|javascript:`),
	regexp.MustCompile(`(?i)<style|\sstyle=|\son\w+=|@import|url\(`),
}

// library is the parser of Markdown, which returns tokens; see markdown.js.
const library = "marked.js"

// The name of the language of drawings looks like an address and is none.
const vector = "http://www.w3.org/2000/svg"

func TestFilesAreSafe(t *testing.T) {
	files := os.DirFS("page")
	names, err := fs.Glob(files, "*")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	var all strings.Builder
	for _, name := range names {
		raw, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		text := strings.ReplaceAll(string(raw), vector, "")
		if name == library {
			text = strings.NewReplacer("https://github.com/markedjs/marked", "", "http://", "", "url(e)", "").Replace(text) // it names itself, completes addresses, and has a method
		}
		all.WriteString(text)
		for _, f := range forbidden {
			if at := f.FindStringIndex(text); at != nil {
				t.Errorf("%s: has %q", name, text[max(0, at[0]-20):min(len(text), at[1]+20)])
			}
		}
		assert.Less(t, strings.Count(text, "\n"), 500, name)
	}
	for _, m := range regexp.MustCompile(`(?s)<script([^>]*)>(.*?)</script>`).FindAllStringSubmatch(all.String(), -1) {
		assert.Contains(t, m[1], "src=")
		assert.Empty(t, m[2], "a script in the document")
	}
}

// Whatever is embedded is used, and whatever is used is there.
func TestFilesAreThoseThatAreUsed(t *testing.T) {
	files := os.DirFS("page")
	used := map[string]bool{"index.html": true}
	reference := regexp.MustCompile(`"assets/([\w.]+)"|from '\./([\w.]+)'`)
	open := []string{"index.html"}
	for len(open) > 0 {
		raw, err := fs.ReadFile(files, open[0])
		require.NoError(t, err)
		open = open[1:]
		for _, m := range reference.FindAllStringSubmatch(string(raw), -1) {
			if name := m[1] + m[2]; !used[name] {
				used[name] = true
				open = append(open, name)
			}
		}
	}
	entries, err := fs.ReadDir(files, ".")
	require.NoError(t, err)
	for _, e := range entries {
		assert.True(t, used[e.Name()], "%s is used by nothing", e.Name())
		delete(used, e.Name())
	}
	assert.Empty(t, used, "are not there")
	assert.Len(t, webpage.Routes(), len(entries))
}

// Every element that a script looks for by its id is there, and there once.
func TestIds(t *testing.T) {
	files := os.DirFS("page")
	raw, err := fs.ReadFile(files, "index.html")
	require.NoError(t, err)
	var ids []string
	for _, m := range regexp.MustCompile(` id="([\w-]+)"`).FindAllStringSubmatch(string(raw), -1) {
		assert.NotContains(t, ids, m[1])
		ids = append(ids, m[1])
	}
	scripts, err := fs.Glob(files, "*.js")
	require.NoError(t, err)
	for _, name := range scripts {
		raw, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?:^|[^.\w])get\('([\w-]+)'\)`).FindAllStringSubmatch(string(raw), -1) {
			assert.True(t, slices.Contains(ids, m[1]), "%s looks for %s", name, m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?:for|aria-labelledby|aria-describedby)="([\w-]+)"`).FindAllStringSubmatch(string(raw), -1) {
		assert.Contains(t, ids, m[1])
	}
}
