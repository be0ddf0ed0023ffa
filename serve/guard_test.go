package serve_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/serve"
)

// protect is a guarded handler that answers every request.
func protect(t *testing.T, g serve.Guard) http.Handler {
	t.Helper()
	h, err := g.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "in") }))
	require.NoError(t, err)
	return h
}

// refused returns the code of an error in OpenAI's form, empty if the request was let in.
func refused(t *testing.T, h http.Handler, r *http.Request, status int) string {
	t.Helper()
	w := recorded(h, r)
	if w.Body.String() == "in" {
		return ""
	}
	var answer struct {
		Error struct{ Message, Type, Code string }
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer), w.Body)
	assert.Equal(t, status, w.Code)
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	assert.Equal(t, "invalid_request_error", answer.Error.Type)
	assert.NotEmpty(t, answer.Error.Message)
	return answer.Error.Code
}

// A page whose name was rebound to the address of the server is not let in.
func TestGuardHosts(t *testing.T) {
	for _, c := range []struct {
		guard serve.Guard
		hosts map[string]bool // let in
	}{
		{serve.Guard{Hosts: []string{"Lora.example:9", "192.0.2.5", "fe80::1"}}, map[string]bool{
			"localhost": true, "LOCALHOST:8000": true, "localhost.:8000": true, "127.0.0.1:8000": true, "127.0.0.1": true, "[::1]:8000": true, "[::1]": true,
			"lora.example": true, "lora.EXAMPLE:1": true, "lora.example.": true, "192.0.2.5:8000": true, "[fe80::1]:8000": true,
			"evil.example": false, "evil.example:8000": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "xlora.example": false,
			"": false, ":8000": false, "192.0.2.6:8000": false, "[fe80::2]:8000": false, "0.0.0.0:8000": false, "*": false,
		}},
		{serve.Guard{Addresses: true}, map[string]bool{"192.0.2.7:8000": true, "[fd00::7]:8000": true, "localhost": true, "evil.example": false, "192.0.2.7.evil.example": false, "": false}},
		{serve.Guard{Hosts: []string{"*"}}, map[string]bool{"evil.example": true, "192.0.2.7": true, "": true}},
	} {
		h := protect(t, c.guard)
		for host, in := range c.hosts {
			for _, method := range []string{"GET", "DELETE", "OPTIONS"} {
				r := request(method, "/v1/models", "")
				r.Host = host
				want := "host_not_allowed"
				if in {
					want = ""
				}
				assert.Equal(t, want, refused(t, h, r, http.StatusMisdirectedRequest), "%+v %s %s", c.guard, method, host)
				r = request(method, "/health", "")
				r.Host = host
				assert.Empty(t, refused(t, h, r, 0), "a probe")
			}
		}
	}
}

// A page of another site cannot send what a browser sends without asking first.
func TestGuardOrigins(t *testing.T) {
	strict, trusting := protect(t, serve.Guard{}), protect(t, serve.Guard{Origins: []string{"https://chat.example"}})
	open := protect(t, serve.Guard{Origins: []string{"*"}})
	for _, c := range []struct {
		method, site, origin string
		want                 [3]bool // let in: strict, trusting, open
	}{
		{"POST", "", "", [3]bool{true, true, true}},
		{"POST", "same-origin", "http://localhost:8000", [3]bool{true, true, true}},
		{"POST", "none", "", [3]bool{true, true, true}},
		{"POST", "cross-site", "https://evil.example", [3]bool{false, false, true}},
		{"POST", "cross-site", "https://chat.example", [3]bool{false, true, true}},
		{"POST", "same-site", "http://localhost:3000", [3]bool{false, false, true}},
		{"POST", "cross-site", "null", [3]bool{false, false, true}},
		{"POST", "", "https://evil.example", [3]bool{false, false, true}}, // a browser without Sec-Fetch-Site
		{"POST", "", "http://localhost:8000", [3]bool{true, true, true}},
		{"DELETE", "cross-site", "https://evil.example", [3]bool{false, false, true}},
		{"PUT", "cross-site", "", [3]bool{false, false, true}},
		{"GET", "cross-site", "https://evil.example", [3]bool{true, true, true}},
		{"OPTIONS", "cross-site", "https://evil.example", [3]bool{true, true, true}},
	} {
		for i, h := range []http.Handler{strict, trusting, open} {
			r := httptest.NewRequest(c.method, "http://localhost:8000/v1/files", nil)
			if c.site != "" {
				r.Header.Set("Sec-Fetch-Site", c.site)
			}
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			want := "cross_origin"
			if c.want[i] {
				want = ""
			}
			assert.Equal(t, want, refused(t, h, r, http.StatusForbidden), "%d %+v", i, c)
		}
	}
	for _, bad := range []string{"chat.example", "https://chat.example/", "null", ""} {
		_, err := serve.Guard{Origins: []string{bad}}.Protect(nil)
		assert.ErrorContains(t, err, "expected an origin such as https://chat.example.com", bad)
	}
}
