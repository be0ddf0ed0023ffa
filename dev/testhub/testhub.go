// Package testhub is a fake Hugging Face Hub for tests. It answers like huggingface.co, can simulate network faults,
// and records requests.
package testhub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Hub is a fake huggingface.co that serves the contents of large files from a second server, the CDN. Tests may change
// it before the first request, or through Spoil.
type Hub struct {
	Server, CDN *httptest.Server
	Repos       map[string]*Repo // by owner/name, datasets by datasets/owner/name
	Faults      []Fault          // of the CDN, one for each request, in order
	Answers     []int            // status of the first answers of the Hub, before it is well
	Push        *Push            // nil if it accepts no pushes

	mu     sync.Mutex
	seen   []Seen
	listed int // of seen, by Files
}

// Seen is a request as it came in.
type Seen struct {
	Host   string // hub or cdn
	Method string
	Path   string
	Token  string
	Range  string
}

// Repo is a model on the Hub.
type Repo struct {
	Token string // that it asks for
	Gated bool
	Refs  map[string]string            // revision → commit
	Trees map[string]map[string]string // commit → path → contents
	Large map[string]bool              // paths of files on the CDN

	Private bool     // as the listing says
	Message string   // of the last commit that was pushed
	Ignored []string // paths that .gitignore names
}

// Fault describes how the CDN corrupts a response.
type Fault struct {
	Cut         int  // close the connection after this number of bytes
	Stall       bool // and before that, do nothing until the client is gone
	IgnoreRange bool
	Garbage     bool // other bytes
	Longer      bool // more bytes, and no Content-Length
	Status      int
}

// New starts a Hub with these models. It stops when the test ends.
func New(t testing.TB, repos map[string]*Repo) *Hub {
	h := &Hub{Repos: repos}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serveHub))
	h.mu.Lock()
	h.CDN = httptest.NewServer(http.HandlerFunc(h.serveCDN))
	h.mu.Unlock()
	t.Cleanup(h.Server.Close)
	t.Cleanup(h.CDN.Close)
	return h
}

// Commit is the commit of repositories from Upload.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// Upload returns a repository of the files in a folder and its subfolders, with weights on the CDN.
func Upload(t testing.TB, dir string) *Repo {
	t.Helper()
	r := &Repo{Refs: map[string]string{"main": Commit}, Trees: map[string]map[string]string{Commit: {}}, Large: map[string]bool{}}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		name = filepath.ToSlash(name)
		r.Trees[Commit][name], r.Large[name] = string(raw), strings.HasSuffix(name, ".safetensors")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Serve starts a Hub like New, sets the environment so that this process uses it, and gives it an empty cache.
func Serve(t *testing.T, repos map[string]*Repo) *Hub {
	for _, name := range []string{
		"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",
		"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_IMPLICIT_TOKEN",
	} {
		t.Setenv(name, "")
	}
	h := New(t, repos)
	t.Setenv("HF_ENDPOINT", h.Server.URL)
	t.Setenv("HF_HOME", t.TempDir())
	return h
}

func (h *Hub) note(host string, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, Seen{host, r.Method, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Range")})
}

// Requests counts the matching requests so far.
func (h *Hub) Requests(match func(Seen) bool) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.seen {
		if match(s) {
			n++
		}
	}
	return n
}

// Files returns the files downloaded since the last call, sorted by name.
func (h *Hub) Files() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.seen[h.listed:] {
		if _, file, ok := strings.Cut(s.Path, "/resolve/"); ok && s.Method == http.MethodGet {
			_, name, _ := strings.Cut(file, "/")
			names = append(names, name)
		}
	}
	h.listed = len(h.seen)
	slices.Sort(names)
	return slices.Compact(names)
}

// Total counts all requests.
func (h *Hub) Total() int { return h.Requests(func(Seen) bool { return true }) }

// Ranges returns the ranges requested from the CDN; "" means a whole file.
func (h *Hub) Ranges() (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.seen {
		if s.Host == "cdn" {
			list = append(list, s.Range)
		}
	}
	return list
}

// Spoil sets the faults. It may be called while requests are in progress.
func (h *Hub) Spoil(faults ...Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Faults = faults
}

func (h *Hub) serveHub(w http.ResponseWriter, r *http.Request) {
	h.note("hub", r)
	h.mu.Lock()
	if len(h.Answers) > 0 {
		status := h.Answers[0]
		h.Answers = h.Answers[1:]
		h.mu.Unlock()
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(status)
		return
	}
	h.mu.Unlock()
	if h.servePush(w, r) {
		return
	}
	fail := func(status int, code, message string) {
		w.Header().Set("X-Error-Code", code)
		w.Header().Set("X-Error-Message", message)
		w.WriteHeader(status)
	}
	path, isAPI := strings.CutPrefix(r.URL.Path, "/api/models/")
	ofData, dataAPI := strings.CutPrefix(path, "/api/datasets/")
	ofData, isData := strings.CutPrefix(ofData, "/datasets/")
	if isData = isData || dataAPI; isData {
		path, isAPI = ofData, dataAPI
	}
	path = strings.TrimPrefix(path, "/")
	parts := strings.SplitN(path, "/", 4)
	if len(parts) < 4 {
		fail(404, "", "no route")
		return
	}
	id, revision, file := parts[0]+"/"+parts[1], parts[3], ""
	if isData {
		id = "datasets/" + id
	}
	repo := h.Repos[id]
	if repo == nil {
		fail(401, "RepoNotFound", "Repository not found")
		return
	}
	if repo.Token != "" && r.Header.Get("Authorization") != "Bearer "+repo.Token {
		switch {
		case repo.Gated:
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
	commit, ok := repo.Refs[revision]
	if !ok {
		commit = revision
	}
	tree, ok := repo.Trees[commit]
	if !ok {
		fail(404, "RevisionNotFound", "Invalid rev id: "+revision)
		return
	}
	if isAPI {
		listing := map[string]any{"sha": commit, "private": repo.Private}
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
	if repo.Large[file] {
		etag := SHA256(content)
		w.Header().Set("X-Linked-Etag", `"`+etag+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
		w.Header().Set("ETag", `"etag of the pointer"`)
		w.Header().Set("Location", h.CDN.URL+"/"+id+"/"+commit+"/"+file+"?signed=secret")
		w.WriteHeader(http.StatusFound)
		return
	}
	w.Header().Set("ETag", `W/"`+GitSHA(content)+`"`)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
}

func (h *Hub) serveCDN(w http.ResponseWriter, r *http.Request) {
	h.note("cdn", r)
	if r.Method == http.MethodPut {
		h.put(w, r)
		return
	}
	h.mu.Lock()
	var f Fault
	if len(h.Faults) > 0 {
		f, h.Faults = h.Faults[0], h.Faults[1:]
	}
	h.mu.Unlock()
	path, kind := strings.TrimPrefix(r.URL.Path, "/"), ""
	if rest, isData := strings.CutPrefix(path, "datasets/"); isData {
		path, kind = rest, "datasets/"
	}
	parts := strings.SplitN(path, "/", 4)
	content := h.Repos[kind+parts[0]+"/"+parts[1]].Trees[parts[2]][parts[3]]
	if f.Status != 0 {
		w.WriteHeader(f.Status)
		return
	}
	if f.Garbage {
		content = strings.Repeat("x", len(content))
	}
	if f.Longer {
		w.Write([]byte(content))
		w.(http.Flusher).Flush() // chunked: no Content-Length
		w.Write([]byte("more"))
		return
	}
	if f.IgnoreRange {
		r.Header.Del("Range")
	}
	if f.Cut > 0 || f.Stall {
		start := 0
		if rng := r.Header.Get("Range"); rng != "" {
			fmt.Sscanf(rng, "bytes=%d-", &start)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(content)-1, len(content)))
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content)-start))
		if start > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		w.Write([]byte(content[start:min(start+f.Cut, len(content))]))
		w.(http.Flusher).Flush()
		if f.Stall {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
}

// SHA256 returns the etag of a large file.
func SHA256(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// GitSHA returns the etag of a small file.
func GitSHA(content string) string {
	sum := sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(content), content)))
	return hex.EncodeToString(sum[:])
}
