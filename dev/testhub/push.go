package testhub

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Push is what a Hub needs to accept pushes. It is used under the lock of the Hub.
type Push struct {
	// Tokens maps write tokens to the owners that they may write to.
	Tokens map[string][]string
	// Readers are tokens that may only read.
	Readers []string
	// ChunkSize is the size of the parts of large files; 0 means that files are sent whole.
	ChunkSize int
	// Stops are statuses of the next requests by the last element of their path: "commit", "batch", "put", …
	Stops map[string][]int
	// LoseCommits makes this number of commits, and closes the connection instead of answering.
	LoseCommits int
	// Commits counts the commits.
	Commits int
	// Before is called ahead of each commit.
	Before func(*Repo)

	stored map[string]string         // SHA-256 → contents of large files
	parts  map[string]map[int]string // SHA-256 → parts
	puts   int
}

// Puts returns how many uploads the storage has accepted.
func (h *Hub) Puts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Push.puts
}

// Stop plans the statuses of the next requests, see [Push.Stops], while requests of an interrupted
// client may still be answered.
func (h *Hub) Stop(statuses map[string][]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Push.Stops = statuses
}

// stopped answers with the next planned status of a request, if there is one.
func (h *Hub) stopped(w http.ResponseWriter, what string) bool {
	if left := h.Push.Stops[what]; len(left) > 0 {
		h.Push.Stops[what] = left[1:]
		if left[0] != 0 {
			w.Header().Set("Retry-After", "0")
			http.Error(w, `{"error":"planned"}`, left[0])
			return true
		}
	}
	return false
}

// servePush answers a request of a push, and reports whether it was one.
func (h *Hub) servePush(w http.ResponseWriter, r *http.Request) bool {
	if h.Push == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	owners, writes := h.Push.Tokens[token]
	fail := func(status int, code, message string) bool {
		w.Header().Set("X-Error-Code", code)
		w.Header().Set("X-Error-Message", message)
		w.WriteHeader(status)
		return true
	}
	if token != "" && !writes && !slices.Contains(h.Push.Readers, token) && !strings.HasPrefix(r.URL.Path, "/complete/") {
		return fail(http.StatusUnauthorized, "", "Invalid credentials in Authorization header")
	}
	if r.Method != http.MethodPost {
		id := strings.Join(strings.SplitN(strings.TrimPrefix(r.URL.Path, "/api/models/"), "/", 3)[:2], "/")
		if repo := h.Repos[id]; token != "" && (repo == nil || repo.Private && !slices.Contains(owners, path.Dir(id))) {
			return fail(http.StatusNotFound, "RepoNotFound", "Repository not found")
		}
		return false
	}
	body, _ := io.ReadAll(r.Body)
	answer := func(v any) bool { json.NewEncoder(w).Encode(v); return true }
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if parts[0] == "complete" {
		return h.stopped(w, "complete") || h.complete(w, parts[1], body)
	}
	var id, what, revision string
	switch {
	case r.URL.Path == "/api/repos/create":
		var q struct{ Organization, Name, Visibility string }
		json.Unmarshal(body, &q)
		id, what, revision = q.Organization+"/"+q.Name, "create", q.Visibility
	case strings.HasSuffix(r.URL.Path, ".git/info/lfs/objects/batch"):
		id, what = strings.TrimSuffix(strings.Join(parts[:2], "/"), ".git"), "batch"
	case len(parts) == 6 && parts[0] == "api":
		id, what, revision = parts[2]+"/"+parts[3], parts[4], parts[5]
	default:
		return fail(http.StatusNotFound, "", "no route")
	}
	if h.stopped(w, what) {
		return true
	}
	if !slices.Contains(owners, path.Dir(id)) {
		return fail(http.StatusForbidden, "", "You don't have the rights to write to "+path.Dir(id))
	}
	repo := h.Repos[id]
	if what == "create" {
		if repo != nil {
			return fail(http.StatusConflict, "", "You already created this model repo")
		}
		commit := fmt.Sprintf("%040x", 1)
		h.Repos[id] = &Repo{Private: revision == "private", Refs: map[string]string{"main": commit}, Trees: map[string]map[string]string{commit: {".gitattributes": "*.safetensors filter=lfs"}}, Large: map[string]bool{}}
		return answer(map[string]string{"url": h.Server.URL + "/" + id})
	}
	if repo == nil {
		return fail(http.StatusNotFound, "RepoNotFound", "Repository not found")
	}
	head, ok := repo.Refs[revision]
	switch {
	case what == "batch":
		return h.batch(w, body)
	case what == "branch" && ok:
		return fail(http.StatusConflict, "", "Reference already exists")
	case what == "branch":
		repo.Refs[revision] = repo.Refs["main"]
		return answer(map[string]string{})
	case !ok:
		return fail(http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
	case what == "preupload":
		return answer(map[string]any{"files": repo.modes(head, body)})
	case what == "commit":
		return h.commit(w, repo, revision, body)
	}
	return fail(http.StatusNotFound, "", "no route")
}

// modes says how files are to be uploaded.
func (r *Repo) modes(commit string, body []byte) (files []map[string]any) {
	var q struct {
		Files []struct {
			Path   string
			Sample []byte
			Size   int
		}
	}
	json.Unmarshal(body, &q)
	for _, f := range q.Files {
		mode := "regular"
		if slices.Contains([]string{".safetensors", ".bin", ".gguf"}, path.Ext(f.Path)) || f.Size > 10<<20 || bytes.ContainsRune(f.Sample, 0) {
			mode = "lfs"
		}
		a := map[string]any{"path": f.Path, "uploadMode": mode, "shouldIgnore": slices.Contains(r.Ignored, f.Path)}
		if content, ok := r.Trees[commit][f.Path]; ok {
			a["oid"] = GitSHA(content)
			if r.Large[f.Path] {
				a["oid"] = SHA256(content)
			}
		}
		files = append(files, a)
	}
	return files
}

// batch says where large files go.
func (h *Hub) batch(w http.ResponseWriter, body []byte) bool {
	var q struct {
		Objects []struct {
			OID  string
			Size int
		}
	}
	json.Unmarshal(body, &q)
	objects := []map[string]any{}
	for _, o := range q.Objects {
		answer := map[string]any{"oid": o.OID, "size": o.Size}
		if _, there := h.Push.stored[o.OID]; !there {
			up := map[string]any{"href": h.CDN.URL + "/put/" + o.OID + "/0?signed=secret"}
			if size := h.Push.ChunkSize; size > 0 && o.Size > size {
				header := map[string]any{"chunk_size": strconv.Itoa(size)}
				for i := range (o.Size + size - 1) / size {
					header[fmt.Sprintf("%05d", i+1)] = fmt.Sprintf("%s/put/%s/%d?signed=secret", h.CDN.URL, o.OID, i+1)
				}
				up = map[string]any{"href": h.Server.URL + "/complete/" + o.OID, "header": header}
			}
			answer["actions"] = map[string]any{"upload": up}
		}
		objects = append(objects, answer)
	}
	json.NewEncoder(w).Encode(map[string]any{"transfer": "basic", "objects": objects})
	return true
}

// put stores a large file or a part of one. Like S3 it stores nothing of an incomplete request.
func (h *Hub) put(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	parts := strings.Split(r.URL.Path, "/")
	number, _ := strconv.Atoi(parts[3])
	switch {
	case h.stopped(w, "put"):
		return
	case err != nil || r.ContentLength != int64(len(body)) || r.Header.Get("Authorization") != "":
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	if h.Push.stored == nil {
		h.Push.stored, h.Push.parts = map[string]string{}, map[string]map[int]string{}
	}
	h.Push.puts++
	if number == 0 {
		if SHA256(string(body)) != parts[2] {
			http.Error(w, "wrong hash", http.StatusBadRequest)
			return
		}
		h.Push.stored[parts[2]] = string(body)
	} else {
		if h.Push.parts[parts[2]] == nil {
			h.Push.parts[parts[2]] = map[int]string{}
		}
		h.Push.parts[parts[2]][number] = string(body)
	}
	w.Header().Set("ETag", `"`+SHA256(string(body))[:32]+`"`)
}

// complete joins the parts of a large file.
func (h *Hub) complete(w http.ResponseWriter, oid string, body []byte) bool {
	var q struct {
		OID   string
		Parts []struct {
			PartNumber int
			Etag       string
		}
	}
	json.Unmarshal(body, &q)
	content := ""
	for i, p := range q.Parts {
		part := h.Push.parts[oid][p.PartNumber]
		if p.PartNumber != i+1 || p.Etag != `"`+SHA256(part)[:32]+`"` {
			http.Error(w, `{"error":"wrong part"}`, http.StatusBadRequest)
			return true
		}
		content += part
	}
	if SHA256(content) != oid || q.OID != oid {
		http.Error(w, `{"error":"wrong hash"}`, http.StatusBadRequest)
		return true
	}
	h.Push.stored[oid] = content
	delete(h.Push.parts, oid)
	w.Write([]byte("{}"))
	return true
}

// commit adds files to a branch.
func (h *Hub) commit(w http.ResponseWriter, repo *Repo, revision string, body []byte) bool {
	if h.Push.Before != nil {
		h.Push.Before(repo)
	}
	tree, large := maps.Clone(repo.Trees[repo.Refs[revision]]), maps.Clone(repo.Large)
	for i, text := range bytes.Split(bytes.TrimSpace(body), []byte("\n")) {
		var line struct {
			Key   string
			Value struct{ Summary, ParentCommit, Path, Content, Encoding, OID, Algo string }
		}
		if err := json.Unmarshal(text, &line); err != nil || (i == 0) != (line.Key == "header") {
			http.Error(w, `{"error":"malformed line"}`, http.StatusBadRequest)
			return true
		}
		v := line.Value
		switch line.Key {
		case "header":
			if v.ParentCommit != repo.Refs[revision] {
				http.Error(w, `{"error":"A commit has happened since. Please refresh and try again."}`, http.StatusPreconditionFailed)
				return true
			}
			repo.Message = v.Summary
		case "file":
			content, err := base64.StdEncoding.DecodeString(v.Content)
			if err != nil || v.Encoding != "base64" {
				http.Error(w, `{"error":"not base64"}`, http.StatusBadRequest)
				return true
			}
			tree[v.Path], large[v.Path] = string(content), false
		case "lfsFile":
			content, ok := h.Push.stored[v.OID]
			if !ok {
				http.Error(w, `{"error":"Your push was rejected because an LFS pointer pointed to a file that does not exist"}`, http.StatusBadRequest)
				return true
			}
			tree[v.Path], large[v.Path] = content, true
		}
	}
	sum := sha1.Sum(fmt.Appendf(nil, "%s %s", repo.Refs[revision], body))
	commit := hex.EncodeToString(sum[:])
	repo.Trees[commit], repo.Refs[revision], repo.Large = tree, commit, large
	h.Push.Commits++
	if h.Push.LoseCommits > 0 {
		h.Push.LoseCommits--
		panic(http.ErrAbortHandler)
	}
	json.NewEncoder(w).Encode(map[string]string{"commitOid": commit, "commitUrl": h.Server.URL + "/commit/" + commit})
	return true
}
