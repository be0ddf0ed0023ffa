package tinker_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// What real clients have sent is answered as they need it: tinker 0.38.0, and the
// supervised and the RL loop of tinker-cookbook 0.6.1.
func TestRecordedClients(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { replay(t, open(t), file) })
	}
}

// replay sends the lines of a file, with our names for what the recorded server called
// sess-1, run-1, samp-1 and req-N.
func replay(t *testing.T, p *place, file string) {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	names := map[string]string{}
	futures := 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			M, Path string
			Body    json.RawMessage
			Headers map[string]string
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
		var proto struct {
			Bytes []byte `json:"protobuf_base64"`
		}
		_ = json.Unmarshal(line.Body, &proto)
		body := []byte(line.Body)
		if proto.Bytes != nil {
			body = renamed(t, proto.Bytes, names)
		} else if string(body) == "null" {
			body = nil
			if line.M == http.MethodPost {
				body = []byte("{}")
			}
		}
		path := strings.TrimPrefix(line.Path, "/api/v1/")
		if proto.Bytes == nil {
			body = rename(body, names)
		}
		w := p.send(line.M, string(rename([]byte(path), names)), line.Headers["content-type"], body)
		require.Equal(t, http.StatusOK, w.Code, "%s\n%s", lines.Text(), w.Body)
		if w.Header().Get("Content-Type") == "application/x-protobuf" {
			assert.Contains(t, []string{"Sample", "ForwardBackward", "Forward"}, line.Headers["x-tinker-request-type"])
			assert.Equal(t, "application/x-protobuf", line.Headers["accept"])
			continue
		}
		v := bodyOf(t, w)
		assert.NotContains(t, v, "error", lines.Text())
		assert.NotEqual(t, "try_again", v["type"])
		if path == "retrieve_future" {
			assert.Equal(t, "application/json", line.Headers["accept"], "%s is protobuf", line.Headers["x-tinker-request-type"])
		}
		if id, ok := v["request_id"].(string); ok {
			futures++
			names[fmt.Sprintf("req-%d", futures)] = id
		}
		for key, name := range map[string]string{"session_id": "sess-1", "model_id": "run-1", "sampling_session_id": "samp-1"} {
			if id, ok := v[key].(string); ok && path != "get_info" {
				names[name] = id
			}
		}
	}
	require.NoError(t, lines.Err())
	assert.Greater(t, futures, 10)
	assert.Contains(t, p.trainer.noted()[0], "new")
}

// rename puts our names in the place of those of the recorded server.
func rename(b []byte, names map[string]string) []byte {
	for _, old := range []string{"run-1", "sess-1", "samp-1"} {
		if id := names[old]; id != "" {
			b = bytes.ReplaceAll(b, []byte(old), []byte(id))
		}
	}
	var v object
	if json.Unmarshal(b, &v) == nil {
		if id := names[fmt.Sprint(v["request_id"])]; id != "" {
			v["request_id"] = id
			b, _ = json.Marshal(v)
		}
	}
	return b
}

// renamed is rename for model_id of a ForwardBackwardRequest.
func renamed(t *testing.T, b []byte, names map[string]string) (out []byte) {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeField(b)
		require.Positive(t, size)
		if n == 1 && kind == protowire.BytesType {
			out = protowire.AppendBytes(protowire.AppendTag(out, 1, protowire.BytesType), []byte(names["run-1"]))
		} else {
			out = append(out, b[:size]...)
		}
		b = b[size:]
	}
	return out
}
