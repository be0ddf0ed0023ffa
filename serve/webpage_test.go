package serve_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/serve"
)

// The page is for all to see; what it asks needs a key, and what is not there is an error
// as everywhere.
func TestWebpage(t *testing.T) {
	s := serving(t, newEngine(t, "x"), func(o *serve.Options) { o.Keys = []string{"sesame"} })
	code, body := ask(t, s, "GET", "/", "")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "<!doctype html>")
	code, _ = ask(t, s, "GET", "/v1/models", "")
	assert.Equal(t, http.StatusUnauthorized, code)
	for path, want := range map[string]string{"/page/": "GET /page/", "/page/app.js": "GET /page/app.js", "/index.html": "GET /index.html"} {
		code, body = ask(t, s, "GET", path, "")
		assert.Equal(t, http.StatusNotFound, code, path)
		assert.Equal(t, `{"error":{"message":"there is no `+want+`","type":"invalid_request_error","param":null,"code":null}}`, body)
	}
	code, body = ask(t, s, "POST", "/", "{}")
	assert.Equal(t, http.StatusMethodNotAllowed, code)
	assert.Contains(t, body, "expected GET, HEAD")
}
