package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// pushAnswer is how long the Hub may take to answer: commits of many large files take longer than downloads.
const pushAnswer = 3 * time.Minute

// Content types of requests.
const (
	jsonType  = "application/json"
	linesType = "application/x-ndjson"
	lfsType   = "application/vnd.git-lfs+json"
)

// largestAnswer bounds the answer of the Hub to a request of a push.
const largestAnswer = 64 << 20

// post sends a value as JSON and decodes the answer, unless it is nil.
func (p *push) post(ctx context.Context, address, contentType string, value, answer any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return p.call(ctx, http.MethodPost, address, contentType, body, answer)
}

// call makes a request with the token until it succeeds or fails for good, and decodes the answer unless it is nil.
func (p *push) call(ctx context.Context, method, address, contentType string, body []byte, answer any) error {
	return p.again(ctx, p.tries, func() error { return p.callOnce(ctx, method, address, contentType, body, answer) })
}

func (p *push) callOnce(ctx context.Context, method, address, contentType string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return p.notAHub()
	}
	req.Header.Set("User-Agent", "lorafuse")
	if strings.HasPrefix(address, p.endpoint+"/") { // elsewhere the address is signed
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if contentType == lfsType {
		req.Header.Set("Accept", lfsType)
	}
	resp, err := p.follow.Do(req)
	if err != nil {
		return p.networkError(ctx, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, largestAnswer))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return p.pushError(resp, text)
	case err != nil:
		return p.networkError(ctx, err)
	case answer != nil && json.Unmarshal(text, answer) != nil:
		return p.notAHub()
	}
	return nil
}

// pushError returns the error for an unsuccessful response of the Hub, with advice.
func (p *push) pushError(resp *http.Response, text []byte) error {
	said := p.said(resp, text)
	code := resp.Header.Get("X-Error-Code")
	tokens := p.endpoint + "/settings/tokens"
	switch status := resp.StatusCode; {
	case code == "RevisionNotFound":
		return fmt.Errorf("%w: %s has no branch %q", ErrRevision, p.repo.id, p.repo.revision)
	case status == http.StatusUnauthorized && code != "RepoNotFound":
		return fmt.Errorf("%w: %s (%s): the access token is not valid; make a new one with write access at %s", ErrUnauthorized, p.repo, said, tokens)
	case code == "RepoNotFound" || status == http.StatusNotFound:
		return fmt.Errorf("%w: %s (%s)", ErrNotFound, p.repo, said)
	case status == http.StatusForbidden:
		owner, _, _ := strings.Cut(p.repo.id, "/")
		return fmt.Errorf("%w: %s (%s): the access token may not write there; use one with write access to %s from %s", ErrUnauthorized, p.repo, said, owner, tokens)
	case status == http.StatusConflict && strings.Contains(said, "conflicting operation is in progress"):
		return &temporary{err: fmt.Errorf("%w: %s: %s", ErrUnreachable, p.repo, said)}
	case status == http.StatusConflict || status == http.StatusPreconditionFailed:
		return fmt.Errorf("%w: %s (%s): somebody else changed it; push again", ErrMoved, p.repo, said)
	case status == http.StatusTooManyRequests:
		wait := retryAfter(resp)
		when := "later"
		if wait > 0 {
			when = fmt.Sprintf("in %v", wait)
		}
		return &temporary{fmt.Errorf("%w: rate limit of %s (%s); the same command resumes the upload, try %s", ErrUnreachable, p.endpoint, said, when), wait}
	case status == http.StatusRequestTimeout || status >= 500 && status != http.StatusNotImplemented:
		return &temporary{fmt.Errorf("%w: %s: %s; the same command resumes the upload", ErrUnreachable, p.repo, said), retryAfter(resp)}
	}
	return fmt.Errorf("%w: %s: the Hub refuses: %s", ErrPush, p.repo, said)
}

// said returns what a response says about its error.
func (p *push) said(resp *http.Response, text []byte) string {
	message := resp.Header.Get("X-Error-Message")
	if message == "" {
		var body struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(text, &body) == nil {
			message = body.Error
		}
	}
	if message == "" {
		return resp.Status
	}
	const most = 300
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + "…"
	}
	return resp.Status + ": " + message
}

// commit makes the commit with the changed files. If the answer is lost, it asks whether the files are there.
func (p *push) commit(ctx context.Context, changed []*localFile) (string, error) {
	body, err := p.commitBody(changed)
	if err != nil {
		return "", err
	}
	var made struct {
		OID string `json:"commitOid"`
	}
	tried := false
	err = p.again(ctx, p.tries, func() error {
		if tried {
			if err := p.modes(ctx); err != nil {
				return err
			}
			if len(p.changed()) == 0 {
				state, err := p.state(ctx, p.repo.revision)
				made.OID = state.SHA
				return err
			}
		}
		tried = true
		return p.callOnce(ctx, http.MethodPost, p.api("commit"), linesType, body, &made)
	})
	if err == nil && !isCommit(made.OID) {
		err = p.notAHub()
	}
	return made.OID, err
}

// commitBody returns the lines of a commit: a header, and a line for each file.
func (p *push) commitBody(changed []*localFile) ([]byte, error) {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	message := p.o.Message
	if message == "" {
		message = "Upload with lorafuse"
	}
	type line struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
	}
	header := map[string]string{"summary": message, "description": "", "parentCommit": p.head}
	errs := []error{lines.Encode(line{"header", header})}
	for _, f := range changed {
		if f.large {
			errs = append(errs, lines.Encode(line{"lfsFile", map[string]any{"path": f.name, "algo": "sha256", "oid": f.oid, "size": f.size}}))
			continue
		}
		content, err := f.read()
		errs = append(errs, err, lines.Encode(line{"file", map[string]any{"path": f.name, "encoding": "base64", "content": content}}))
	}
	return b.Bytes(), errors.Join(errs...)
}
