package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeHub answers as huggingface.co does, with the contents of large files on
// a second server, the CDN.
type fakeHub struct {
	hub, cdn *httptest.Server
	repos    map[string]*fakeRepo

	mu      sync.Mutex
	seen    []seen
	faults  []fault // of the CDN, one for each request, in order
	answers []int   // status of the first answers of the Hub, before it is well
}

// seen is a request as it came in.
type seen struct {
	host   string // hub or cdn
	method string
	path   string
	token  string
	rng    string
}

type fakeRepo struct {
	token string // that it asks for
	gated bool
	refs  map[string]string            // revision → commit
	trees map[string]map[string]string // commit → path → contents
	large map[string]bool              // paths that lie on the CDN
}

// fault is how the CDN spoils an answer.
type fault struct {
	cut         int  // close the connection after so many bytes
	stall       bool // and before that, do nothing until the client is gone
	ignoreRange bool
	garbage     bool // other bytes
	longer      bool // more bytes, and no Content-Length
	status      int
}

var (
	commitA = strings.Repeat("a1", 20)
	commitB = strings.Repeat("b2", 20)
	weights = strings.Repeat("0123456789abcdef", 1<<14) // 256 KiB
)

func newFakeHub(t *testing.T) *fakeHub {
	h := &fakeHub{repos: map[string]*fakeRepo{"acme/tiny": {
		refs: map[string]string{"main": commitA, "v1": commitA, "refs/pr/1": commitA},
		trees: map[string]map[string]string{commitA: {
			"README.md": "read me", "config.json": `{"model_type":"llama"}`, "tokenizer.json": "{}", "generation_config.json": "{}",
			"chat_template.jinja": "{{ messages }}", "model.safetensors": weights, "pytorch_model.bin": "pickle",
			"onnx/model.onnx": "onnx", "additional_chat_templates/tool.jinja": "tool",
		}},
		large: map[string]bool{"model.safetensors": true},
	}}}
	h.hub = httptest.NewServer(http.HandlerFunc(h.serveHub))
	h.mu.Lock()
	h.cdn = httptest.NewServer(http.HandlerFunc(h.serveCDN))
	h.mu.Unlock()
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.cdn.Close)
	return h
}

func (h *fakeHub) tiny() *fakeRepo { return h.repos["acme/tiny"] }

func (h *fakeHub) note(host string, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, seen{host, r.Method, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Range")})
}

// requests counts those that match, and forgets nothing.
func (h *fakeHub) requests(match func(seen) bool) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.seen {
		if match(s) {
			n++
		}
	}
	return n
}

func (h *fakeHub) total() int { return h.requests(func(seen) bool { return true }) }

func (h *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	h.note("hub", r)
	h.mu.Lock()
	if len(h.answers) > 0 {
		status := h.answers[0]
		h.answers = h.answers[1:]
		h.mu.Unlock()
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(status)
		return
	}
	h.mu.Unlock()
	fail := func(status int, code, message string) {
		w.Header().Set("X-Error-Code", code)
		w.Header().Set("X-Error-Message", message)
		w.WriteHeader(status)
	}
	path, isAPI := strings.CutPrefix(r.URL.Path, "/api/models/")
	path = strings.TrimPrefix(path, "/")
	parts := strings.SplitN(path, "/", 4)
	if len(parts) < 4 {
		fail(404, "", "no route")
		return
	}
	id, revision, file := parts[0]+"/"+parts[1], parts[3], ""
	repo := h.repos[id]
	if repo == nil {
		fail(401, "RepoNotFound", "Repository not found")
		return
	}
	if repo.token != "" && r.Header.Get("Authorization") != "Bearer "+repo.token {
		switch {
		case repo.gated:
			fail(403, "GatedRepo", "Access to model "+id+" is restricted")
		case r.Header.Get("Authorization") != "":
			fail(401, "", "Invalid credentials in Authorization header")
		default:
			fail(401, "RepoNotFound", "Repository not found")
		}
		return
	}
	if !isAPI {
		revision, file, _ = strings.Cut(revision, "/")
	}
	commit, ok := repo.refs[revision]
	if !ok {
		commit = revision
	}
	tree, ok := repo.trees[commit]
	if !ok {
		fail(404, "RevisionNotFound", "Invalid rev id: "+revision)
		return
	}
	if isAPI {
		listing := map[string]any{"sha": commit}
		var siblings []map[string]string
		for name := range tree {
			siblings = append(siblings, map[string]string{"rfilename": name})
		}
		slices.SortFunc(siblings, func(a, b map[string]string) int { return strings.Compare(a["rfilename"], b["rfilename"]) })
		listing["siblings"] = siblings
		json.NewEncoder(w).Encode(listing)
		return
	}
	content, ok := tree[file]
	if !ok {
		fail(404, "EntryNotFound", "Entry not found")
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	if repo.large[file] {
		etag := sha(content)
		w.Header().Set("X-Linked-Etag", `"`+etag+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
		w.Header().Set("ETag", `"etag of the pointer"`)
		w.Header().Set("Location", h.cdn.URL+"/"+id+"/"+commit+"/"+file+"?signed=secret")
		w.WriteHeader(http.StatusFound)
		return
	}
	w.Header().Set("ETag", `W/"`+gitSHA(content)+`"`)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
}

func (h *fakeHub) serveCDN(w http.ResponseWriter, r *http.Request) {
	h.note("cdn", r)
	h.mu.Lock()
	var f fault
	if len(h.faults) > 0 {
		f, h.faults = h.faults[0], h.faults[1:]
	}
	h.mu.Unlock()
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 4)
	content := h.repos[parts[0]+"/"+parts[1]].trees[parts[2]][parts[3]]
	if f.status != 0 {
		w.WriteHeader(f.status)
		return
	}
	if f.garbage {
		content = strings.Repeat("x", len(content))
	}
	if f.longer {
		w.Write([]byte(content))
		w.(http.Flusher).Flush() // chunked: no Content-Length
		w.Write([]byte("more"))
		return
	}
	if f.ignoreRange {
		r.Header.Del("Range")
	}
	if f.cut > 0 || f.stall {
		start := 0
		if rng := r.Header.Get("Range"); rng != "" {
			fmt.Sscanf(rng, "bytes=%d-", &start)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(content)-1, len(content)))
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content)-start))
		if start > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		w.Write([]byte(content[start:min(start+f.cut, len(content))]))
		w.(http.Flusher).Flush()
		if f.stall {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
}

func sha(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func gitSHA(content string) string {
	sum := sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(content), content)))
	return hex.EncodeToString(sum[:])
}
