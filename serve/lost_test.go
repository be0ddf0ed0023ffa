package serve_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/serve"
)

// A server that has lost devices is healthy while one is left, and says what is wrong.
func TestHealth(t *testing.T) {
	var lost []error
	s := serving(t, newEngine(t, "x"), func(o *serve.Options) { o.Lost = func() []error { return lost } })
	first, second := errors.New("device cuda:0: a"), errors.New("device cuda:1: b")
	for _, c := range []struct {
		lost []error
		code int
		body string
	}{
		{[]error{nil, nil}, 200, ""},
		{[]error{nil, second}, 200, `{"status":"degraded","reasons":["device cuda:1: b"]}`},
		{[]error{first, second}, 503, `{"error":{"message":"device cuda:0: a; device cuda:1: b","type":"server_error","param":null,"code":"device_lost"}}`},
	} {
		lost = c.lost
		for _, path := range []string{"/health", "/ping", "/ready"} {
			code, body := ask(t, s, "GET", path, "")
			assert.Equal(t, c.code, code, path)
			assert.Equal(t, c.body, body, path)
		}
	}
}

// The request of a device that is lost is to be repeated, before its first token by the status and later by an event.
func TestLostDevice(t *testing.T) {
	e := newEngine(t, "One two three")
	lost := fmt.Errorf("batching: device cuda:1: %w", backend.ErrLost)
	s := serving(t, e)
	const failed = `{"error":{"message":"the device that computed the answer is lost; repeat the request","type":"server_error","param":null,"code":"device_lost"}}`
	e.broken = lost
	w := recorded(s, request("POST", "/v1/completions", `{"stream":true,"temperature":0,"prompt":"a"}`))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), "\n\ndata: "+failed+"\n\ndata: [DONE]\n\n")
	e.refuse = lost
	w = recorded(s, request("POST", "/v1/completions", `{"prompt":"a"}`))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
	assert.Equal(t, failed, w.Body.String())
}
