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
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/lorafuse/lorafuse/internal/serve/tuning"
)

// Allowance for the multipart encoding of an uploaded file, and for each form field.
const (
	envelope  = 1 << 20
	fieldRoom = 4 << 10
)

// slowestUpload is the minimum rate of an upload in bytes per second. Within each BodyTimeout the
// client must send as much as this rate requires, or the rest of the body.
const slowestUpload = 16 << 10

// steadyReader reads a body and extends the deadline with each part that arrives.
type steadyReader struct {
	call *call
	from io.Reader
	part int64 // bytes since the last extension of the deadline
}

func (r *steadyReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	timeout := r.call.server.options.BodyTimeout
	if r.part += int64(n); float64(r.part) >= slowestUpload*timeout.Seconds() {
		r.part = 0
		_ = r.call.control.SetReadDeadline(time.Now().Add(timeout)) // if the connection supports deadlines
	}
	return n, err
}

// uploadFile handles POST /v1/files. It writes the file while it arrives.
func (s *Server) uploadFile(c *call) error {
	kind, params, err := mime.ParseMediaType(c.request.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return &failure{status: http.StatusUnsupportedMediaType, message: fmt.Sprintf("found Content-Type %.100q, expected multipart/form-data with a boundary", c.request.Header.Get("Content-Type"))}
	}
	body := http.MaxBytesReader(c.ResponseWriter, c.request.Body, s.options.Tuning.MaxFile()+envelope)
	form := &form{reader: multipart.NewReader(&steadyReader{call: c, from: body}, params["boundary"]), values: map[string]string{}, begin: s.options.Tuning.Upload}
	defer form.abort()
	if err := form.read(); err != nil {
		return uploadFailure(err)
	}
	_ = c.control.SetReadDeadline(time.Time{}) // otherwise the rest still has to be discarded
	f, err := form.file()
	if err != nil {
		return err
	}
	f.Owner = c.who.Name
	if f, err = form.upload.Commit(f); err != nil {
		return err
	}
	c.note(slog.String("file", f.ID), slog.Int64("bytes", f.Bytes))
	return c.json(newFileInfo(f))
}

// form holds the form fields that are sent with a file.
type form struct {
	reader *multipart.Reader
	begin  func() (*tuning.Upload, error)
	upload *tuning.Upload // nil before the file part
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

// file returns the description of the file in the form fields.
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

// uploadFailure converts an error during an upload to an API error.
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
