package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// breakOff sends the first n bytes of an answer and then cuts the connection.
func breakOff(w http.ResponseWriter, answer func(http.ResponseWriter), n int) {
	rec := httptest.NewRecorder()
	answer(rec)
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprintf(buffered, "HTTP/1.1 %d x\r\nContent-Length: %d\r\n", rec.Code, rec.Body.Len())
	for key := range rec.Header() {
		if key != "Content-Length" {
			fmt.Fprintf(buffered, "%s: %s\r\n", key, rec.Header().Get(key))
		}
	}
	fmt.Fprint(buffered, "\r\n")
	buffered.Write(rec.Body.Bytes()[:min(n, rec.Body.Len())])
	buffered.Flush()
}

func TestWhatPasses(t *testing.T) {
	file, large := model(t)
	status := func(code int) func(*server, http.ResponseWriter, *http.Request) {
		return func(_ *server, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "0")
			http.Error(w, "later", code)
		}
	}
	for name, fail := range map[string]func(*server, http.ResponseWriter, *http.Request){
		"408": status(408), "425": status(425), "429": status(429), "500": status(500), "502": status(502), "503": status(503), "504": status(504),
		"reset before the answer": func(_ *server, w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
		},
		"broken off": func(s *server, w http.ResponseWriter, r *http.Request) {
			breakOff(w, func(w http.ResponseWriter) {
				w.Header().Set("ETag", s.etag)
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.data))
			}, 100)
		},
		"stalled": func(_ *server, _ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Second):
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, file)
			s.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
				if n%2 == 1 || n%5 == 0 {
					fail(s, w, r)
					return true
				}
				return false
			}
			o := quick
			o.Parallel, o.Range, o.Retries = 1, 300<<10, 20
			if name == "stalled" {
				o.Stall = 100 * time.Millisecond
			}
			f := open(t, s, o)
			require.NoError(t, lookup(t, f, "large").WithBytes(func(data []byte) error {
				assert.True(t, bytes.Equal(large, data))
				return nil
			}))
		})
	}
}

// Bytes received before a response broke off are not requested again.
func TestBrokenAnswersAreContinued(t *testing.T) {
	file, large := model(t)
	s := serve(t, file)
	o := quick
	o.Parallel = 1
	f := open(t, s, o)
	s.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 3 {
			return false
		}
		breakOff(w, func(w http.ResponseWriter) {
			w.Header().Set("ETag", s.etag)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.data))
		}, 1000)
		return true
	}
	v := lookup(t, f, "large")
	_, offset, _ := v.Extent()
	require.NoError(t, v.WithBytes(func(data []byte) error {
		assert.True(t, bytes.Equal(large, data))
		return nil
	}))
	var asked []string
	for _, r := range s.requests {
		from, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")
		asked = append(asked, from)
	}
	want := []string{"0"}
	for _, from := range []int64{1024, 2024, 3024, 4024} {
		want = append(want, strconv.FormatInt(from, 10))
	}
	assert.Equal(t, want, asked, "the tensor begins at %d, the first request brought what is before 1024", offset)
}

func TestWhatDoesNotPass(t *testing.T) {
	file, _ := model(t)
	for name, c := range map[string]struct {
		answer   http.HandlerFunc
		want     error
		requests int
	}{
		"not found":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, fs.ErrNotExist, 1},
		"gone":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(410) }, fs.ErrNotExist, 1},
		"unauthorized": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, fs.ErrPermission, 1},
		"forbidden":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, fs.ErrPermission, 1},
		"always busy":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, &StatusError{503}, 4},
		"busy for an hour": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(503)
		}, &StatusError{503}, 1},
		"teapot":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) }, &StatusError{418}, 1},
		"no ranges": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(file) }, ErrNoRanges, 1},
		"empty": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes */0")
			w.WriteHeader(416)
		}, safetensors.ErrHeaderTooSmall, 1},
		"not satisfiable": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(416) }, &StatusError{416}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, file)
			s.before = func(_ int, w http.ResponseWriter, r *http.Request) bool { c.answer(w, r); return true }
			o := quick
			o.Retries = 3
			_, err := Open(t.Context(), s.URL+"/m?token=secret", o)
			require.Error(t, err)
			var status, want *StatusError
			if errors.As(c.want, &want) {
				require.ErrorAs(t, err, &status)
				assert.Equal(t, want, status)
			} else if c.want != nil {
				assert.ErrorIs(t, err, c.want)
			}
			assert.Equal(t, c.requests, s.count())
			assert.ErrorContains(t, err, s.URL+"/m: ")
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

// An answer that is not the one to the request is refused, and not waited for.
func TestAnswersThatDoNotFit(t *testing.T) {
	file, _ := model(t)
	headers := func(w http.ResponseWriter, contentRange string) {
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Range", contentRange)
	}
	total := strconv.Itoa(len(file))
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"no content range": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("ETag", `"v1"`); w.WriteHeader(206) }, ErrResponse},
		"several parts": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "multipart/byteranges; boundary=x")
			w.WriteHeader(206)
		}, ErrResponse},
		"unknown size":     {func(w http.ResponseWriter, _ *http.Request) { headers(w, "bytes 0-1/*"); w.WriteHeader(206) }, ErrResponse},
		"other unit":       {func(w http.ResponseWriter, _ *http.Request) { headers(w, "items 0-1/5"); w.WriteHeader(206) }, ErrResponse},
		"signs":            {func(w http.ResponseWriter, _ *http.Request) { headers(w, "bytes +0-1/5"); w.WriteHeader(206) }, ErrResponse},
		"end before begin": {func(w http.ResponseWriter, _ *http.Request) { headers(w, "bytes 3-2/5"); w.WriteHeader(206) }, ErrResponse},
		"end beyond size":  {func(w http.ResponseWriter, _ *http.Request) { headers(w, "bytes 0-5/5"); w.WriteHeader(206) }, ErrResponse},
		"no size":          {func(w http.ResponseWriter, _ *http.Request) { headers(w, "bytes 0-5"); w.WriteHeader(206) }, ErrResponse},
		"no span":          {func(w http.ResponseWriter, _ *http.Request) { headers(w, "bytes 5/7"); w.WriteHeader(206) }, ErrResponse},
		"2^63": {func(w http.ResponseWriter, _ *http.Request) {
			headers(w, "bytes 0-1/9223372036854775808")
			w.WriteHeader(206)
		}, ErrResponse},
		"another beginning": {func(w http.ResponseWriter, _ *http.Request) { headers(w, "bytes 1-1023/"+total); w.WriteHeader(206) }, ErrResponse},
		"another end":       {func(w http.ResponseWriter, _ *http.Request) { headers(w, "bytes 0-1000/"+total); w.WriteHeader(206) }, ErrResponse},
		"fewer bytes": {func(w http.ResponseWriter, _ *http.Request) {
			headers(w, "bytes 0-1023/"+total)
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(206)
			_, _ = w.Write(file[:10])
		}, ErrResponse},
		"more bytes": {func(w http.ResponseWriter, _ *http.Request) {
			headers(w, "bytes 0-1023/"+total)
			w.WriteHeader(206)
			_, _ = w.Write(file[:1024])
			w.(http.Flusher).Flush() // in chunks, without a length
			_, _ = w.Write(file[:1])
		}, ErrResponse},
		"gzip": {func(w http.ResponseWriter, _ *http.Request) {
			headers(w, "bytes 0-1023/"+total)
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(206)
			_, _ = w.Write(file[:1024])
		}, ErrResponse},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, file)
			s.before = func(_ int, w http.ResponseWriter, r *http.Request) bool { c.answer(w, r); return true }
			_, err := Open(t.Context(), s.URL, quick)
			assert.ErrorIs(t, err, c.want)
			assert.Equal(t, 1, s.count())
		})
	}
}

// A file that changes after it was opened is an error, however the server says
// so, and even where it does not notice.
func TestChangedFile(t *testing.T) {
	file, _ := model(t)
	day := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	deaf := func(_ int, _ http.ResponseWriter, r *http.Request) bool { r.Header.Del("If-Range"); return false }
	for name, c := range map[string]struct {
		etag   string
		date   time.Time
		before func(int, http.ResponseWriter, *http.Request) bool
		change func(s *server)
		want   error
	}{
		"tag":                     {`"v1"`, time.Time{}, nil, func(s *server) { s.etag = `"v2"` }, ErrChanged},
		"tag, server is deaf":     {`"v1"`, time.Time{}, deaf, func(s *server) { s.etag = `"v2"` }, ErrChanged},
		"weak tag":                {`W/"v1"`, time.Time{}, nil, func(s *server) { s.etag = `W/"v2"` }, ErrChanged},
		"tag turns weak":          {`"v1"`, time.Time{}, deaf, func(s *server) { s.etag = `W/"v1"` }, nil},
		"date":                    {"", day, nil, func(s *server) { s.date = day.Add(time.Hour) }, ErrChanged},
		"date, server is deaf":    {"", day, deaf, func(s *server) { s.date = day.Add(time.Hour) }, ErrChanged},
		"size, server is deaf":    {`"v1"`, time.Time{}, deaf, func(s *server) { s.data = append(s.data[:len(s.data):len(s.data)], 0) }, ErrChanged},
		"shorter than the offset": {"", time.Time{}, nil, func(s *server) { s.data = s.data[:100] }, ErrChanged},
		"ranges no longer": {"", time.Time{}, nil, func(s *server) {
			s.before = func(_ int, w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write(s.data); return true }
		}, ErrNoRanges},
		"nothing": {`"v1"`, day, nil, func(*server) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, file)
			s.etag, s.date, s.before = c.etag, c.date, c.before
			f := open(t, s, quick)
			v := lookup(t, f, "small")
			s.set(func() { c.change(s) })
			err := v.WithBytes(func(data []byte) error { assert.Equal(t, []byte{1, 254, 3}, data); return nil })
			assert.Equal(t, 2, s.count())
			if c.want == nil {
				assert.NoError(t, err)
				return
			}
			assert.ErrorIs(t, err, c.want)
			assert.ErrorIs(t, err, safetensors.ErrFault)
			assert.ErrorContains(t, err, `tensor "small"`)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

// If a read fails, the ranges before the failure count, and no further ranges
// are requested.
func TestFailingRanges(t *testing.T) {
	file, large := model(t)
	s := serve(t, file)
	s.before = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n < 3 {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	r, err := NewReaderAt(t.Context(), s.URL, Options{Head: 1, Range: 1000, Parallel: 1})
	require.NoError(t, err)
	p := make([]byte, 10_000)
	n, err := r.ReadAt(p, int64(len(file)-len(large)))
	assert.ErrorIs(t, err, fs.ErrPermission)
	assert.Equal(t, 2000, n)
	assert.Equal(t, file[len(file)-len(large):][:2000], p[:2000])
	assert.Equal(t, 4, s.count())
}

func TestContext(t *testing.T) {
	file, _ := model(t)
	var hang atomic.Bool
	s := serve(t, file)
	s.before = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if hang.Load() {
			<-r.Context().Done()
		}
		return hang.Load()
	}
	ctx, cancel := context.WithCancel(t.Context())
	f, err := Open(ctx, s.URL, quick)
	require.NoError(t, err)
	defer f.Close()
	v := lookup(t, f, "small")
	hang.Store(true)
	time.AfterFunc(20*time.Millisecond, cancel)
	err = v.WithBytes(func([]byte) error { return nil })
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 2, s.count(), "what the caller ends is not tried again")

	busy := serve(t, file)
	ctx, cancel = context.WithCancel(t.Context())
	busy.before = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(503)
		time.AfterFunc(300*time.Millisecond, cancel)
		return true
	}
	_, err = Open(ctx, busy.URL, Options{Backoff: time.Minute})
	assert.ErrorIs(t, err, context.Canceled, "while waiting for the next try")
	var status *StatusError
	assert.ErrorAs(t, err, &status, "and why there is one")

	_, err = Open(ctx, busy.URL, quick)
	assert.ErrorIs(t, err, context.Canceled)
	ctx, cancel = context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err = Open(ctx, busy.URL, quick)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestStall(t *testing.T) {
	file, _ := model(t)
	s := serve(t, file)
	s.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-1023/%d", len(file)))
		w.Header().Set("Content-Length", "1024")
		w.WriteHeader(206)
		for i := range 1024 {
			if i%100 == 99 { // slow is not stalled
				w.(http.Flusher).Flush()
				time.Sleep(30 * time.Millisecond)
			}
			if n < 2 && i == 900 {
				<-r.Context().Done()
				return true
			}
			_, _ = w.Write(file[i : i+1])
		}
		return true
	}
	o := quick
	o.Stall, o.Retries = 250*time.Millisecond, 1
	_, err := Open(t.Context(), s.URL, o)
	assert.ErrorIs(t, err, ErrStalled)
	assert.Equal(t, 2, s.count())
	_, err = Open(t.Context(), s.URL, o)
	assert.NoError(t, err)
}

func TestWhereThereIsNoServer(t *testing.T) {
	s := serve(t, nil)
	s.Close()
	o := quick
	o.Retries = -1
	_, err := Open(t.Context(), s.URL+"/m?token=secret", o)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
	for _, address := range []string{"", "m.safetensors", "ftp://host/m", "http:///m", "http://[::1/m?token=secret", "file:///m?token=secret"} {
		_, err := Open(t.Context(), address, Options{})
		assert.Error(t, err, address)
		assert.NotContains(t, err.Error(), "secret")
	}
	tlsServer := httptest.NewUnstartedServer(s)
	tlsServer.Config.ErrorLog = log.New(io.Discard, "", 0)
	tlsServer.StartTLS()
	defer tlsServer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = Open(ctx, tlsServer.URL, Options{Backoff: time.Hour})
	assert.ErrorContains(t, err, "certificate", "an unknown authority does not become known by waiting")
	_, err = Open(ctx, strings.Replace(serve(t, nil).URL, "http:", "https:", 1), Options{Backoff: time.Hour})
	assert.Error(t, err)
	assert.NoError(t, ctx.Err(), "nor does a server learn TLS")
}

func TestRetryAfter(t *testing.T) {
	assert.Equal(t, 7*time.Second, retryAfter("7"))
	assert.Zero(t, retryAfter(""))
	assert.Zero(t, retryAfter("-1"))
	assert.Zero(t, retryAfter("soon"))
	assert.InDelta(t, 60, retryAfter(time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)).Seconds(), 5)
	assert.Zero(t, retryAfter("Mon, 02 Jan 2006 15:04:05 GMT"))
}
