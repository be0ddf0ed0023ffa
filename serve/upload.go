package serve

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// Allowance for the multipart encoding of an uploaded file, and for each form field.
const (
	envelope  = 1 << 20
	fieldRoom = 4 << 10
)

// uploadFile handles POST /v1/files. It writes the file while it arrives.
func (s *Server) uploadFile(c *web.Call) error {
	kind, params, err := mime.ParseMediaType(c.Request.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return &web.Failure{Status: http.StatusUnsupportedMediaType, Message: fmt.Sprintf("found Content-Type %.100q, expected multipart/form-data with a boundary", c.Request.Header.Get("Content-Type"))}
	}
	body := c.LongBody(s.options.Tuning.MaxFile() + envelope)
	form := &form{reader: multipart.NewReader(body, params["boundary"]), values: map[string]string{}, begin: s.options.Tuning.Upload}
	defer form.abort()
	if err := form.read(); err != nil {
		return uploadFailure(err)
	}
	c.BodyRead()
	f, err := form.file()
	if err != nil {
		return err
	}
	f.Owner = c.Who.Name
	if f, err = form.upload.Commit(f); err != nil {
		return err
	}
	c.Note(slog.String("file", f.ID), slog.Int64("bytes", f.Bytes))
	return c.JSON(newFileInfo(f))
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
			err = web.Invalid(name, "%.100s: has more than %d bytes", name, fieldRoom)
		}
		f.values[name] = string(raw)
		return err
	}
	if f.upload != nil {
		return web.Invalid("file", "file: found two of them")
	}
	if f.name = part.FileName(); f.name == "" || f.name == "/" || !utf8.ValidString(f.name) {
		return web.Invalid("file", "file: found no file with a name")
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
		return x, web.Invalid("file", "file: is missing")
	}
	if f.values["purpose"] == "" {
		return x, web.Invalid("purpose", "purpose: is missing")
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
		return x, web.Invalid("expires_after.anchor", "expires_after.anchor: found %.100q, expected created_at", f.values[anchor])
	}
	if x.Expires, err = strconv.ParseInt(f.values[seconds], 10, 64); err != nil || x.Expires < 3600 || x.Expires > 2592000 {
		return x, web.Invalid("expires_after.seconds", "expires_after.seconds: found %.100q, expected a whole number from 3600 to 2592000", f.values[seconds])
	}
	return x, nil
}

// uploadFailure converts an error during an upload.
func uploadFailure(err error) error {
	var mine *tuning.Error
	var known *web.Failure
	if errors.As(err, &mine) || errors.As(err, &known) {
		return err
	}
	f := web.BodyFailure(err, "the body is no whole multipart/form-data")
	if f.Status == http.StatusRequestEntityTooLarge {
		f.Param = "file"
	}
	return f
}
