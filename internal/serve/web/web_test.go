package web_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// fields are those of a request, of every kind.
type fields struct {
	common
	Whole   int               `json:"whole" in:"0,most"`
	Wide    *int64            `json:"wide"`
	Number  *float64          `json:"number"`
	Word    string            `json:"word" one:"red|blue"`
	Auto    *int              `json:"auto" auto:"yes"`
	Yes     bool              `json:"yes"`
	List    []int32           `json:"list"`
	Map     map[string]string `json:"map" expected:"an object of strings"`
	Within  struct{ inner }   `json:"within"`
	Pointer *inner            `json:"pointer"`
}

type common struct {
	ID string `json:"id"`
}

type inner struct {
	Depth int `json:"depth"`
}

var errTeapot = errors.New("short and stout")

// open returns an API whose handlers repeat what they have read, fail and panic.
func open(t *testing.T, log io.Writer) *web.API {
	ring, err := keys.NewRing([]string{"ann one"}, []string{"root two"})
	require.NoError(t, err)
	a := &web.API{
		Keys: ring, Key: func(r *http.Request) string { return r.Header.Get("Key") }, KeyExpected: "Key",
		Classify: func(err error) *web.Failure {
			if errors.Is(err, errTeapot) {
				return &web.Failure{Status: http.StatusTeapot, Message: err.Error(), Retry: 7}
			}
			return nil
		},
		Shape: func(f *web.Failure, h http.Header) any {
			h.Set("Param", f.Param)
			return []string{f.Message}
		},
		Limits:      map[string]int{"most": 4},
		Unsupported: map[string]web.Field{"beam": web.Off("1").Instead("; n is"), "penalty": web.Off("0").Needs("beam"), "within.tag": web.NoOp},
		MaxBody:     500, Logger: slog.New(slog.NewTextHandler(log, nil)),
	}
	a.Handle("POST /read", web.Everyone, func(c *web.Call) error {
		var f fields
		if err := c.Decode(&f); err != nil {
			return err
		}
		return c.JSON(f)
	})
	for path, access := range map[string]web.Access{"users": web.Users, "admins": web.Admins} {
		a.Handle("GET /"+path, access, func(c *web.Call) error { return c.JSON([]string{c.Who.Name, c.Client}) })
	}
	for path, f := range map[string]func() error{
		"known": func() error { return fmt.Errorf("I am %w", errTeapot) }, "unknown": func() error { return errors.New("secret") }, "panic": func() error { panic("secret") },
	} {
		a.Handle("GET /"+path, web.Everyone, func(*web.Call) error { return f() })
	}
	return a
}

func ask(a *web.API, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

// TestDecode: fields are read by their tags, and what is wrong is named.
func TestDecode(t *testing.T) {
	var log bytes.Buffer
	a := open(t, &log)
	w := ask(a, "POST", "/read", `{"id":"a","whole":4.0,"wide":9007199254740993,"number":1.5,"word":"red","auto":"auto","yes":true,"list":[1,2],"map":{"a":"b"},
		"within":{"depth":1,"tag":9},"pointer":{"depth":2,"other":0},"beam":1,"penalty":3,"extra":null}`)
	require.Equal(t, 200, w.Code, w.Body)
	assert.JSONEq(t, `{"id":"a","whole":4,"wide":9007199254740993,"number":1.5,"word":"red","auto":null,"yes":true,"list":[1,2],"map":{"a":"b"},
		"within":{"depth":1},"pointer":{"depth":2}}`, w.Body.String())
	assert.Contains(t, log.String(), "field=extra")
	assert.Contains(t, log.String(), "field=pointer.other")
	assert.Equal(t, 2, strings.Count(log.String(), "unknown request field"))
	for body, want := range map[string]string{
		`{"whole":5}`: "whole: found 5, expected a whole number from 0 to 4", `{"whole":"a"}`: `whole: found "a", expected a whole number`,
		`{"wide":0.5}`: "wide: found 0.5", `{"number":"x"}`: `number: found "x", expected a number`,
		`{"word":"bleu"}`: `did you mean "blue"?`, `{"yes":1}`: "yes: found 1, expected true or false", `{"list":[null]}`: "list: found [null], expected a list",
		`{"map":{"a":1}}`: "expected an object of strings", `{"within":7}`: "within: found 7, expected an object", `{"pointer":{"depth":[]}}`: "pointer.depth: found []",
		`{"beam":2}`: "beam: not supported; n is", `{"beam":2,"penalty":1}`: "beam: not supported",
		``: "the body is empty", `[`: "no JSON", `[]`: "found [], expected a JSON object", "\xff": "not UTF-8",
	} {
		w := ask(a, "POST", "/read", body)
		assert.Equal(t, http.StatusBadRequest, w.Code, body)
		assert.Contains(t, strings.ReplaceAll(w.Body.String(), `\"`, `"`), want, body)
	}
	assert.Equal(t, "within", ask(a, "POST", "/read", `{"within":7}`).Header().Get("Param"))
}

// TestBodies: bodies of other types, encodings and sizes are refused.
func TestBodies(t *testing.T) {
	a := open(t, io.Discard)
	assert.Equal(t, http.StatusUnsupportedMediaType, ask(a, "POST", "/read", "{}", "Content-Type", "text/plain").Code)
	assert.Equal(t, http.StatusUnsupportedMediaType, ask(a, "POST", "/read", "{}", "Content-Encoding", "gzip").Code)
	assert.Equal(t, http.StatusOK, ask(a, "POST", "/read", "{}", "Content-Encoding", "identity").Code)
	w := ask(a, "POST", "/read", `{"id":"`+strings.Repeat("a", 500)+`"}`)
	assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	assert.Contains(t, w.Body.String(), "more than 500 bytes")
}

// TestAccess: routes are for everyone, for owners of keys, or for administrators.
func TestAccess(t *testing.T) {
	a := open(t, io.Discard)
	for _, c := range []struct {
		path, key string
		code      int
		body      string
	}{
		{"/users", "one", 200, `["ann","ann"]`}, {"/users", "two", 200, `["root","root"]`}, {"/users", "three", 401, `["the key is missing or wrong; expected it as Key"]`},
		{"/admins", "two", 200, `["root","root"]`}, {"/admins", "one", 401, `["the key is missing or wrong; expected it as Key"]`},
	} {
		w := ask(a, "GET", c.path, "", "Key", c.key)
		assert.Equal(t, c.code, w.Code, c)
		assert.Equal(t, c.body, w.Body.String())
	}
	a.Keys = keys.Ring{}
	assert.Equal(t, `["","192.0.2.1"]`, ask(a, "GET", "/users", "").Body.String())
	a.Admit = func(*web.Call) error { return web.Draining() }
	w := ask(a, "GET", "/users", "")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, "5", w.Header().Get("Retry-After"))
}

// TestFailures: errors are converted, internal ones are in the log alone.
func TestFailures(t *testing.T) {
	var log bytes.Buffer
	a := open(t, &log)
	w := ask(a, "GET", "/known", "")
	assert.Equal(t, http.StatusTeapot, w.Code)
	assert.Equal(t, `["I am short and stout"]`, w.Body.String())
	assert.Equal(t, "7", w.Header().Get("Retry-After"))
	for _, path := range []string{"/unknown", "/panic"} {
		log.Reset()
		w := ask(a, "GET", path, "", "X-Request-Id", "me")
		assert.Equal(t, http.StatusInternalServerError, w.Code)
		assert.Equal(t, `["the server failed; its log says why"]`, w.Body.String())
		assert.Equal(t, "me", w.Header().Get("X-Request-Id"))
		assert.Contains(t, log.String(), "secret")
		assert.Contains(t, log.String(), "level=ERROR")
	}
	w = ask(a, "POST", "/known", "")
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
	assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	w = ask(a, "GET", "/nowhere", "")
	assert.Equal(t, http.StatusNotFound, w.Code)
	assert.Equal(t, `["there is no GET /nowhere"]`, w.Body.String())
}
