package serve_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/serve"
)

func decoded(t testing.TB, text string) (v map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// A file can be sent, listed, read and deleted.
func TestFiles(t *testing.T) {
	s := tunes(t, &trainer{})
	w := sendFile(t, s, `a "b" ü.jsonl`, chats, [2]string{"purpose", "fine-tune"}, [2]string{"expires_after[anchor]", "created_at"}, [2]string{"expires_after[seconds]", "3600"})
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	f := decoded(t, w.Body.String())
	id := f["id"].(string)
	assert.Regexp(t, "^file-[0-9A-Za-z]{24}$", id)
	assert.Equal(t, map[string]any{
		"id": id, "object": "file", "bytes": float64(len(chats)), "created_at": f["created_at"], "expires_at": f["created_at"].(float64) + 3600,
		"filename": `a "b" ü.jsonl`, "purpose": "fine-tune", "status": "processed", "status_details": nil,
	}, f)
	r := recorded(s, request("GET", "/v1/files/"+id+"/content", ""))
	assert.Equal(t, chats, r.Body.String())
	assert.Equal(t, `attachment; filename*=utf-8''a%20%22b%22%20%C3%BC.jsonl`, r.Header().Get("Content-Disposition"))

	other := uploaded(t, s, "x")
	w = sendFile(t, s, "u", "y", [2]string{"purpose", "user_data"})
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	data := decoded(t, w.Body.String())["id"].(string)
	for query, want := range map[string][]string{
		"": {data, other, id}, "?order=asc": {id, other, data}, "?purpose=fine-tune": {other, id}, "?limit=1": {data}, "?after=" + data + "&limit=1": {other}, "?after=" + id: nil,
	} {
		code, text := ask(t, s, "GET", "/v1/files"+query, "")
		require.Equal(t, http.StatusOK, code, text)
		var got []string
		for _, f := range decoded(t, text)["data"].([]any) {
			got = append(got, f.(map[string]any)["id"].(string))
		}
		assert.Equal(t, want, got, query)
		assert.Equal(t, strings.Contains(query, "limit"), decoded(t, text)["has_more"], query)
	}
	code, text := ask(t, s, "DELETE", "/v1/files/"+id, "")
	assert.Equal(t, 200, code)
	assert.JSONEq(t, `{"id": "`+id+`", "object": "file", "deleted": true}`, text)
	for _, method := range []string{"GET", "DELETE"} {
		code, text = ask(t, s, method, "/v1/files/"+id, "")
		assert.Equal(t, 404, code)
		assert.Contains(t, text, "No such File object: "+id)
	}
}

// What is no file is refused, and leaves nothing.
func TestFileRefusals(t *testing.T) {
	s := tunes(t, &trainer{})
	purpose := [2]string{"purpose", "fine-tune"}
	for _, c := range []struct {
		name, text string
		fields     [][2]string
		code       int
		want       string
	}{
		{"a", "x", [][2]string{{"purpose", "batch"}}, 400, "purpose: batch is not supported, expected fine-tune or user_data"},
		{"a", "x", [][2]string{{"purpose", "fine-tun"}}, 400, `purpose: found \"fine-tun\", expected fine-tune or user_data`},
		{"a", "x", [][2]string{{"other", "x"}}, 400, "purpose: is missing"},
		{"", "", [][2]string{purpose}, 400, "file: is missing"},
		{"a", "", [][2]string{purpose}, 400, "file: is empty"},
		{"a", strings.Repeat("x", 4097), [][2]string{purpose}, 413, "file: has more than 4096 bytes"},
		{"a", "x", [][2]string{{"purpose", strings.Repeat("x", 5000)}}, 400, "purpose: has more than 4096 bytes"},
		{"a", "x", [][2]string{purpose, {"expires_after[seconds]", "7200"}}, 400, "expires_after.anchor"},
		{"a", "x", [][2]string{purpose, {"expires_after[anchor]", "created_at"}, {"expires_after[seconds]", "1"}}, 400, "from 3600 to 2592000"},
	} {
		w := sendFile(t, s, c.name, c.text, c.fields...)
		assert.Equal(t, c.code, w.Code, c.want)
		assert.Contains(t, w.Body.String(), c.want)
	}
	for body, want := range map[string]string{
		"": "file: is missing", "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nhalf": "no whole multipart",
		"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--b--\r\n": "no file with a name",
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/files", strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		w := recorded(s, r)
		assert.Equal(t, 400, w.Code)
		assert.Contains(t, w.Body.String(), want)
	}
	code, _ := ask(t, s, "POST", "/v1/files", "{}")
	assert.Equal(t, http.StatusUnsupportedMediaType, code)
	for query, want := range map[string]string{"limit=0": "limit", "limit=x": "limit", "order=up": "order", "after=x": "after"} {
		code, text := ask(t, s, "GET", "/v1/files?"+query, "")
		assert.Equal(t, 400, code)
		assert.Contains(t, text, `"param":"`+want+`"`)
	}
	code, text := ask(t, s, "GET", "/v1/files", "")
	assert.Equal(t, 200, code)
	assert.JSONEq(t, `{"object":"list","data":[],"has_more":false,"first_id":null,"last_id":null}`, text)
	code, _ = ask(t, tunes(t, &trainer{}, func(o *serve.Options) { o.Tuning = nil }), "GET", "/v1/files", "")
	assert.Equal(t, 404, code)
}

// A client that goes in the middle of a file leaves nothing, while others go on.
func TestBrokenUpload(t *testing.T) {
	dir := t.TempDir()
	s := tunesIn(t, dir, &trainer{})
	h := httptest.NewServer(s)
	defer h.Close()
	at, err := url.Parse(h.URL)
	require.NoError(t, err)
	c, err := net.Dial("tcp", at.Host)
	require.NoError(t, err)
	_, err = io.WriteString(c, "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nhalf")
	require.NoError(t, err)
	dir = filepath.Join(dir, "files")
	require.Eventually(t, func() bool { e, _ := os.ReadDir(dir); return len(e) == 1 }, time.Minute, time.Millisecond)
	uploaded(t, s, chats)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { e, _ := os.ReadDir(dir); return len(e) == 1 && strings.HasPrefix(e[0].Name(), "file-") }, time.Minute, time.Millisecond)
}

// An upload that only just moves ends, and leaves nothing; one that moves well has all its time.
func TestSlowUpload(t *testing.T) {
	const head = "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000\r\n\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n"
	dir := t.TempDir()
	h := httptest.NewServer(tunesIn(t, dir, &trainer{}, func(o *serve.Options) { o.BodyTimeout = 300 * time.Millisecond }))
	defer h.Close()
	c, err := net.Dial("tcp", strings.TrimPrefix(h.URL, "http://"))
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, head)
	require.NoError(t, err)
	go func() {
		for err := error(nil); err == nil; _, err = io.WriteString(c, "x") {
			time.Sleep(20 * time.Millisecond)
		}
	}()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(waitMost)))
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusRequestTimeout, a.StatusCode)
	entries, err := os.ReadDir(filepath.Join(dir, "files"))
	require.NoError(t, err)
	assert.Empty(t, entries)

	slow, w := io.Pipe() // 100 KB a second, in four times the timeout
	go func() {
		io.WriteString(w, "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nfine-tune\r\n--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx")
		for range 60 {
			time.Sleep(20 * time.Millisecond)
			io.WriteString(w, "\r\n--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n"+strings.Repeat("x", 2000))
		}
		io.WriteString(w, "\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nrow\r\n--b--\r\n")
		w.Close()
	}()
	a, err = http.Post(h.URL+"/v1/files", "multipart/form-data; boundary=b", slow)
	require.NoError(t, err)
	a.Body.Close()
	assert.Equal(t, http.StatusOK, a.StatusCode)
}
