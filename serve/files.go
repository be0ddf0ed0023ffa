package serve

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lorafuse/lorafuse/serve/tuning"
)

// fileInfo is what a client is told of a file.
type fileInfo struct {
	ID       string         `json:"id"`
	Object   string         `json:"object"`
	Bytes    int64          `json:"bytes"`
	Created  int64          `json:"created_at"`
	Expires  *int64         `json:"expires_at"`
	Filename string         `json:"filename"`
	Purpose  tuning.Purpose `json:"purpose"`
	Status   string         `json:"status"`
	Details  *string        `json:"status_details"`
}

func newFileInfo(f tuning.File) fileInfo {
	return fileInfo{ID: f.ID, Object: "file", Bytes: f.Bytes, Created: f.Created, Expires: orNone(f.Expires), Filename: f.Name, Purpose: f.Purpose, Status: "processed"}
}

// orNone is nil for 0.
func orNone[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// Room for what stands around a file that is sent, and in a field beside it.
const (
	envelope  = 1 << 20
	fieldRoom = 4 << 10
)

// patientReader gives a client some time for each piece of what it sends.
type patientReader struct {
	call *call
	from io.Reader
}

func (r patientReader) Read(b []byte) (int, error) {
	_ = r.call.control.SetReadDeadline(time.Now().Add(r.call.server.options.BodyTimeout)) // where the connection has any
	return r.from.Read(b)
}

// uploadFile answers POST /v1/files: it writes the file as it comes.
func (s *Server) uploadFile(c *call) error {
	kind, params, err := mime.ParseMediaType(c.request.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return &failure{status: http.StatusUnsupportedMediaType, message: fmt.Sprintf("found Content-Type %.100q, expected multipart/form-data with a boundary", c.request.Header.Get("Content-Type"))}
	}
	body := http.MaxBytesReader(c.ResponseWriter, c.request.Body, s.options.Tuning.MaxFile()+envelope)
	form := &form{reader: multipart.NewReader(patientReader{c, body}, params["boundary"]), values: map[string]string{}, begin: s.options.Tuning.Upload}
	defer form.abort()
	if err := form.read(); err != nil {
		return uploadFailure(err)
	}
	_ = c.control.SetReadDeadline(time.Time{}) // else the rest is still to be thrown away
	f, err := form.file()
	if err != nil {
		return err
	}
	f.Owner = c.client
	if f, err = form.upload.Commit(f); err != nil {
		return err
	}
	c.note(slog.String("file", f.ID), slog.Int64("bytes", f.Bytes))
	return c.json(newFileInfo(f))
}

// form is what is sent with a file.
type form struct {
	reader *multipart.Reader
	begin  func() (*tuning.Upload, error)
	upload *tuning.Upload // nil before there is a file
	name   string         // of the file
	values map[string]string
}

func (f *form) abort() {
	if f.upload != nil {
		f.upload.Abort()
	}
}

func (f *form) read() error {
	for {
		part, err := f.reader.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f.part(part); err != nil {
			return err
		}
	}
}

func (f *form) part(part *multipart.Part) (err error) {
	name := part.FormName()
	if name != "file" {
		raw, err := io.ReadAll(io.LimitReader(part, fieldRoom+1))
		if err == nil && len(raw) > fieldRoom {
			err = invalid(name, "%.100s: has more than %d bytes", name, fieldRoom)
		}
		f.values[name] = string(raw)
		return err
	}
	if f.upload != nil {
		return invalid("file", "file: found two of them")
	}
	if f.name = part.FileName(); f.name == "" || f.name == "/" || !utf8.ValidString(f.name) {
		return invalid("file", "file: found no file with a name")
	}
	if f.upload, err = f.begin(); err != nil {
		return err
	}
	_, err = io.Copy(f.upload, part)
	return err
}

// file is what the fields say of the file.
func (f *form) file() (x tuning.File, err error) {
	if f.upload == nil {
		return x, invalid("file", "file: is missing")
	}
	if f.values["purpose"] == "" {
		return x, invalid("purpose", "purpose: is missing")
	}
	x.Name = f.name
	if x.Purpose, err = tuning.ParsePurpose(f.values["purpose"]); err != nil {
		return x, err
	}
	const anchor, seconds = "expires_after[anchor]", "expires_after[seconds]"
	if f.values[anchor] == "" && f.values[seconds] == "" {
		return x, nil
	}
	if f.values[anchor] != "created_at" {
		return x, invalid("expires_after.anchor", "expires_after.anchor: found %.100q, expected created_at", f.values[anchor])
	}
	if x.Expires, err = strconv.ParseInt(f.values[seconds], 10, 64); err != nil || x.Expires < 3600 || x.Expires > 2592000 {
		return x, invalid("expires_after.seconds", "expires_after.seconds: found %.100q, expected a whole number from 3600 to 2592000", f.values[seconds])
	}
	return x, nil
}

// uploadFailure says what went wrong while a file came.
func uploadFailure(err error) error {
	var mine *tuning.Error
	var known *failure
	var tooLarge *http.MaxBytesError
	var timeout net.Error
	switch {
	case errors.As(err, &mine), errors.As(err, &known):
		return err
	case errors.As(err, &tooLarge):
		return &failure{status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit), param: "file", cause: err}
	case errors.As(err, &timeout) && timeout.Timeout():
		return &failure{status: http.StatusRequestTimeout, message: "the file takes too long to come", cause: err}
	}
	return &failure{status: http.StatusBadRequest, message: "the body is no whole multipart/form-data", cause: err}
}

// listing is a page of a list, as OpenAI has it.
type listing[T any] struct {
	Object string  `json:"object"`
	Data   []T     `json:"data"`
	More   bool    `json:"has_more"`
	First  *string `json:"first_id"`
	Last   *string `json:"last_id"`
}

// page is at most limit of all, from the one behind that of the id after.
func page[T, W any](all []T, id func(T) string, after string, limit int, tell func(T) W) (p listing[W], err error) {
	p = listing[W]{Object: "list", Data: []W{}}
	if after != "" {
		for len(all) > 0 && id(all[0]) != after {
			all = all[1:]
		}
		if len(all) == 0 {
			return p, invalid("after", "after: nothing in the list has the id %.200q", after)
		}
		all = all[1:]
	}
	if p.More = len(all) > limit; p.More {
		all = all[:limit]
	}
	for _, x := range all {
		p.Data = append(p.Data, tell(x))
	}
	if len(all) > 0 {
		p.First, p.Last = orNone(id(all[0])), orNone(id(all[len(all)-1]))
	}
	return p, nil
}

// limit is how many of a list a client wants at once.
func (c *call) limit(normal, most int) (int, error) {
	text := c.request.URL.Query().Get("limit")
	if text == "" {
		return normal, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, invalid("limit", "limit: found %.100q, expected a whole number from 1 to %d", text, most)
	}
	return n, nil
}

// mostListed is how much a client can have of a list at once.
const mostListed = 10_000

// listFiles answers GET /v1/files.
func (s *Server) listFiles(c *call) error {
	query := c.request.URL.Query()
	limit, err := c.limit(mostListed, mostListed)
	if err != nil {
		return err
	}
	all := s.options.Tuning.Files()
	switch order := query.Get("order"); order {
	case "", "desc":
	case "asc":
		for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
			all[i], all[j] = all[j], all[i]
		}
	default:
		return invalid("order", "order: found %.100q, expected asc or desc", order)
	}
	if purpose := query.Get("purpose"); purpose != "" {
		kept := all[:0]
		for _, f := range all {
			if string(f.Purpose) == purpose {
				kept = append(kept, f)
			}
		}
		all = kept
	}
	p, err := page(all, func(f tuning.File) string { return f.ID }, query.Get("after"), limit, newFileInfo)
	if err != nil {
		return err
	}
	return c.json(p)
}

// findFile answers GET /v1/files/{id}.
func (s *Server) findFile(c *call) error {
	f, err := s.options.Tuning.File(c.request.PathValue("id"))
	if err != nil {
		return err
	}
	return c.json(newFileInfo(f))
}

// readFile answers GET /v1/files/{id}/content.
func (s *Server) readFile(c *call) error {
	f, r, err := s.options.Tuning.Content(c.request.PathValue("id"))
	if err != nil {
		return err
	}
	defer r.Close()
	h := c.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(f.Bytes, 10))
	if shown := mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(strings.ToValidUTF8(f.Name, "_"))}); shown != "" {
		h.Set("Content-Disposition", shown)
	}
	_, err = io.Copy(c, r)
	return err
}

// deleteFile answers DELETE /v1/files/{id}.
func (s *Server) deleteFile(c *call) error {
	id := c.request.PathValue("id")
	if err := s.options.Tuning.DeleteFile(id); err != nil {
		return err
	}
	return c.json(deletion{id, "file", true})
}

// deletion says that something is gone.
type deletion struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}
