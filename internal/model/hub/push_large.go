package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// lfsText is a value of a header of a transfer: a string, or a number as text.
type lfsText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *lfsText) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(t))
	}
	*t = lfsText(raw)
	return nil
}

// lfsAction is a request of a transfer that the Hub asks for.
type lfsAction struct {
	Href   string             `json:"href"`
	Header map[string]lfsText `json:"header"`
}

// lfsObject is the Hub's answer about one large file. Without actions it has the file already.
type lfsObject struct {
	OID     string `json:"oid"`
	Actions struct {
		Upload *lfsAction `json:"upload"`
		Verify *lfsAction `json:"verify"`
	} `json:"actions"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// uploadLarge uploads the large ones of the changed files, except those that the Hub has stored already.
func (p *push) uploadLarge(ctx context.Context, changed []*localFile) error {
	byOID := map[string]*localFile{}
	var large []*localFile
	for _, f := range changed {
		if f.large && byOID[f.oid] == nil {
			byOID[f.oid] = f
			large = append(large, f)
		}
	}
	for part := range slices.Chunk(large, perCall) {
		objects, err := p.batch(ctx, part)
		if err != nil {
			return err
		}
		for _, o := range objects {
			switch f := byOID[o.OID]; {
			case f == nil:
				return p.notAHub()
			case o.Error != nil:
				return fmt.Errorf("%w: %s: the Hub refuses %s: %d %s", ErrPush, p.repo, f.name, o.Error.Code, o.Error.Message)
			}
		}
		fetch := &fetcher{remote: p.remote, workers: p.o.Workers}
		if fetch.workers == 0 {
			fetch.workers = defaultWorkers
		}
		err = fetch.each(ctx, len(objects), func(ctx context.Context, i int) error {
			return p.upload(ctx, byOID[objects[i].OID], objects[i])
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// batch asks the Hub how to upload large files.
func (p *push) batch(ctx context.Context, files []*localFile) ([]lfsObject, error) {
	type object struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	}
	query := map[string]any{"operation": "upload", "transfers": []string{"basic", "multipart"}, "hash_algo": "sha256"}
	if p.branch {
		query["ref"] = map[string]string{"name": p.repo.revision}
	}
	var objects []object
	for _, f := range files {
		objects = append(objects, object{f.oid, f.size})
	}
	query["objects"] = objects
	var answer struct {
		Objects []lfsObject `json:"objects"`
	}
	err := p.post(ctx, p.endpoint+"/"+p.repo.id+".git/info/lfs/objects/batch", lfsType, query, &answer)
	if err == nil && len(answer.Objects) != len(files) {
		err = p.notAHub()
	}
	return answer.Objects, err
}

// upload uploads one large file as the Hub asks for.
func (p *push) upload(ctx context.Context, f *localFile, o lfsObject) error {
	note := p.cache.lock(f.oid) + ".upload"
	if o.Actions.Upload != nil {
		in, err := os.Open(f.path)
		if err != nil {
			return err
		}
		defer in.Close()
		t := &transfer{push: p, file: f, in: in, note: note, uploadState: uploadState{Upload: *o.Actions.Upload}}
		if err := t.run(ctx); err != nil {
			return err
		}
		if verify := o.Actions.Verify; verify != nil {
			if err := p.post(ctx, p.here(verify.Href), lfsType, map[string]any{"oid": f.oid, "size": f.size}, nil); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(note); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if p.o.Progress != nil {
		p.o.Progress(f.name, f.size, f.size)
	}
	return nil
}

// here returns an address of huggingface.co at the endpoint in use, as a mirror needs.
func (p *push) here(address string) string {
	if rest, ok := strings.CutPrefix(address, "https://huggingface.co/"); ok {
		return p.endpoint + "/" + rest
	}
	return address
}

// transfer is the upload of one large file.
type transfer struct {
	*push
	uploadState
	file  *localFile
	in    *os.File
	note  string // path of the file that keeps uploadState
	shown time.Time
}

// uploadState is what a later push needs to continue an upload in parts.
type uploadState struct {
	Upload lfsAction `json:"upload"`
	Parts  []lfsPart `json:"parts"` // the finished ones
}

// lfsPart is a finished part of an upload.
type lfsPart struct {
	Number int    `json:"partNumber"`
	Etag   string `json:"etag"`
}

// errExpired is the error for an upload that the storage no longer accepts.
var errExpired = errors.New("the storage refuses the upload")

// run uploads the file, in parts if the Hub asks for parts. It continues the upload of an earlier push, and starts from
// the beginning if that one has expired.
func (t *transfer) run(ctx context.Context) error {
	if t.Upload.Header["chunk_size"] == "" {
		_, err := t.put(ctx, t.here(t.Upload.Href), t.Upload.Header, 0, t.file.size)
		return err
	}
	fresh := t.uploadState
	var earlier uploadState
	if raw, err := os.ReadFile(t.note); err == nil && json.Unmarshal(raw, &earlier) == nil && len(earlier.Parts) > 0 {
		t.uploadState = earlier
		if err := t.inParts(ctx); !errors.Is(err, errExpired) {
			return err
		}
		t.uploadState = fresh
	}
	return t.inParts(ctx)
}

// inParts uploads the remaining parts and completes the upload.
func (t *transfer) inParts(ctx context.Context) error {
	size, err := strconv.ParseInt(string(t.Upload.Header["chunk_size"]), 10, 64)
	if err != nil || size <= 0 {
		return t.notAHub()
	}
	parts := (t.file.size + size - 1) / size
	for i := int64(len(t.Parts)); i < parts; i++ {
		address := t.part(i + 1)
		if address == "" {
			return t.notAHub()
		}
		etag, err := t.put(ctx, address, nil, i*size, min(size, t.file.size-i*size))
		if err != nil {
			return err
		}
		t.Parts = append(t.Parts, lfsPart{int(i + 1), etag})
		t.keep()
	}
	err = t.post(ctx, t.here(t.Upload.Href), lfsType, map[string]any{"oid": t.file.oid, "parts": t.Parts}, nil)
	if errors.Is(err, ErrPush) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnauthorized) {
		err = fmt.Errorf("%w: %w", errExpired, err)
	}
	return err
}

// part returns the address of a part, whose number may have leading zeros.
func (t *transfer) part(number int64) string {
	for key, address := range t.Upload.Header {
		if n, err := strconv.ParseInt(key, 10, 64); err == nil && n == number {
			return string(address)
		}
	}
	return ""
}

// keep saves the state. Without it a later push uploads the file again, so errors do not matter.
func (t *transfer) keep() {
	raw, err := json.Marshal(t.uploadState)
	if err == nil && os.MkdirAll(filepath.Dir(t.note), 0o700) == nil {
		_ = fsatomic.WriteFile(t.note, raw)
	}
}

// put uploads bytes of the file and returns the etag of the response.
func (t *transfer) put(ctx context.Context, address string, header map[string]lfsText, offset, size int64) (etag string, err error) {
	err = t.again(ctx, t.tries, func() error {
		if err := t.file.unchanged(); err != nil {
			return err
		}
		etag, err = t.putOnce(ctx, address, header, offset, size)
		return err
	})
	return etag, err
}

func (t *transfer) putOnce(ctx context.Context, address string, header map[string]lfsText, offset, size int64) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(pushAnswer, func() { cancel(errStalled) })
	defer watch.Stop()
	body := &upload{Reader: io.NewSectionReader(t.in, offset, size), sent: func(n int64) {
		watch.Reset(pushAnswer)
		if t.o.Progress != nil && offset+n < t.file.size && time.Since(t.shown) > 50*time.Millisecond {
			t.shown = time.Now()
			t.o.Progress(t.file.name, offset+n, t.file.size)
		}
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, address, body)
	if err != nil {
		return "", t.notAHub()
	}
	req.ContentLength = size
	for name, value := range header {
		req.Header.Set(name, string(value))
	}
	resp, err := t.noRedirect.Do(req)
	if err != nil {
		if context.Cause(ctx) == errStalled {
			return "", &temporary{err: fmt.Errorf("%w: %s: %w", ErrUnreachable, t.file.name, errStalled)}
		}
		return "", t.networkError(ctx, err)
	}
	defer resp.Body.Close()
	switch status := resp.StatusCode; {
	case status >= 200 && status <= 299:
		return resp.Header.Get("ETag"), nil
	case status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500 && status != http.StatusNotImplemented:
		return "", &temporary{fmt.Errorf("%w: %s: the storage answers %s; the same command resumes the upload", ErrUnreachable, t.file.name, resp.Status), retryAfter(resp)}
	}
	return "", fmt.Errorf("%w: %w: %s: %s; push again", ErrUnreachable, errExpired, t.file.name, resp.Status)
}

// upload is the body of a request that reports how much of it was read.
type upload struct {
	io.Reader
	n    int64
	sent func(n int64)
}

// Read implements io.Reader.
func (u *upload) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	u.n += int64(n)
	u.sent(u.n)
	return n, err
}
