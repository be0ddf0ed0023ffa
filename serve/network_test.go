package serve_test

import (
	"bufio"
	"context"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/serve"
)

// listening is a server on the network.
func listening(t *testing.T, e *engine, edits ...func(*serve.Options)) string {
	t.Helper()
	h := httptest.NewServer(serving(t, e, edits...))
	t.Cleanup(h.Close)
	return h.URL
}

// A client that goes in the middle of its answer ends the request.
func TestClientGoes(t *testing.T) {
	for _, stream := range []string{"true", "false"} {
		e := newEngine(t, strings.Repeat("a", 50))
		e.gate, e.left = make(chan struct{}), make(chan struct{})
		url := listening(t, e)
		ctx, cancel := context.WithCancel(context.Background())
		r, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", strings.NewReader(`{"prompt":"a","temperature":0,"max_tokens":50,"stream":`+stream+`}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		failed := make(chan error)
		go func() {
			resp, err := http.DefaultClient.Do(r)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			failed <- err
		}()
		e.gate <- struct{}{}
		e.gate <- struct{}{}
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		<-e.left
	}
}

// flood answers without end.
type flood struct {
	*engine
	ended chan struct{}
}

func (f flood) Submit(ctx context.Context, _ batching.Request) iter.Seq2[batching.Token, error] {
	return func(yield func(batching.Token, error) bool) {
		defer close(f.ended)
		for ctx.Err() == nil && yield(batching.Token{Token: generate.Token{Text: strings.Repeat("flood ", 1000)}}, nil) {
		}
	}
}

// A client that takes nothing is given up.
func TestClientStalls(t *testing.T) {
	e := flood{newEngine(t, "x"), make(chan struct{})}
	url := listening(t, e.engine, func(o *serve.Options) { o.Engine, o.WriteTimeout = e, 100*time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	body := `{"prompt":"a","stream":true}`
	_, err = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 28\r\n\r\n"+body)
	require.NoError(t, err)
	<-e.ended
}

// Half a body is no request.
func TestHalfABody(t *testing.T) {
	url := listening(t, newEngine(t, "x"))
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"prompt\":")
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	assert.Contains(t, string(text), "the body ends before it is complete")
}

// The rest of a body that does not come keeps no request, whether it is read or not.
func TestBodyStalls(t *testing.T) {
	url := listening(t, newEngine(t, "x"), func(o *serve.Options) { o.BodyTimeout, o.Keys = 50*time.Millisecond, []string{"sesame"} })
	for key, status := range map[string]int{"sesame": http.StatusRequestTimeout, "wrong": http.StatusUnauthorized} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+key+"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"prompt\":")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		assert.Equal(t, status, resp.StatusCode)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err, "the server has closed the connection")
	}
}

// untouched is a body that must not be read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

// A body that says that it is too large is not read.
func TestBodyTooLarge(t *testing.T) {
	s := serving(t, newEngine(t, "x"))
	r := httptest.NewRequest("POST", "/v1/completions", untouched{t})
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = 100 << 20
	assert.Equal(t, http.StatusRequestEntityTooLarge, recorded(s, r).Code)
}

// slow waits before its only token.
type slow struct {
	*engine
	wait time.Duration
}

func (s slow) Submit(ctx context.Context, r batching.Request) iter.Seq2[batching.Token, error] {
	return func(yield func(batching.Token, error) bool) {
		select {
		case <-time.After(s.wait):
			yield(batching.Token{Token: generate.Token{Text: "late"}, Finish: generate.FinishEOS}, nil)
		case <-ctx.Done():
			yield(batching.Token{}, ctx.Err())
		}
	}
}

// Whoever waits for a stream hears every 15 seconds that it is still to come.
func TestPing(t *testing.T) {
	e := newEngine(t, "x")
	synctest.Test(t, func(t *testing.T) {
		s := serving(t, e, func(o *serve.Options) { o.Engine = slow{e, 40 * time.Second} })
		w := recorded(s, request("POST", "/v1/completions", `{"prompt":"a","stream":true}`))
		assert.True(t, strings.HasPrefix(w.Body.String(), ": ping\n\n: ping\n\ndata: {"), w.Body.String())
		assert.True(t, strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n"))
		w = recorded(s, request("POST", "/v1/completions", `{"prompt":"a"}`))
		assert.True(t, strings.HasPrefix(w.Body.String(), `{"id"`), w.Body.String())
	})
}

// broken panics, or ends before its answer does.
type broken struct {
	*engine
	panics bool
}

func (b broken) Submit(context.Context, batching.Request) iter.Seq2[batching.Token, error] {
	return func(func(batching.Token, error) bool) {
		if b.panics {
			panic("secret")
		}
	}
}

// Neither a panic nor an answer that stops in the middle is taken for an answer.
func TestBrokenEngine(t *testing.T) {
	e := newEngine(t, "x")
	for _, panics := range []bool{true, false} {
		s := serving(t, e, func(o *serve.Options) { o.Engine = broken{e, panics} })
		code, body := ask(t, s, "POST", "/v1/completions", `{"prompt":"a"}`)
		assert.Equal(t, http.StatusInternalServerError, code)
		assert.NotContains(t, body, "secret")
	}
}
