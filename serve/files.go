package serve

import (
	"io"
	"mime"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// fileInfo is a file in OpenAI's form.
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

// listFiles handles GET /v1/files.
func (s *Server) listFiles(c *web.Call) error {
	query := c.Request.URL.Query()
	limit, err := limit(c, mostListed, mostListed)
	if err != nil {
		return err
	}
	all := s.options.Tuning.Files(c.Who)
	switch order := query.Get("order"); order {
	case "", "desc":
	case "asc":
		slices.Reverse(all)
	default:
		return web.Invalid("order", "order: found %.100q, expected asc or desc", order)
	}
	if purpose := query.Get("purpose"); purpose != "" {
		all = slices.DeleteFunc(all, func(f tuning.File) bool { return string(f.Purpose) != purpose })
	}
	p, err := page(all, func(f tuning.File) string { return f.ID }, query.Get("after"), limit, newFileInfo)
	if err != nil {
		return err
	}
	return c.JSON(p)
}

// findFile handles GET /v1/files/{id}.
func (s *Server) findFile(c *web.Call) error {
	f, err := s.options.Tuning.File(c.Who, c.Request.PathValue("id"))
	if err != nil {
		return err
	}
	return c.JSON(newFileInfo(f))
}

// readFile handles GET /v1/files/{id}/content.
func (s *Server) readFile(c *web.Call) error {
	f, r, err := s.options.Tuning.Content(c.Who, c.Request.PathValue("id"))
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

// deleteFile handles DELETE /v1/files/{id}.
func (s *Server) deleteFile(c *web.Call) error {
	id := c.Request.PathValue("id")
	if err := s.options.Tuning.DeleteFile(c.Who, id); err != nil {
		return err
	}
	return c.JSON(deletion{id, "file", true})
}

// deletion is the response to a DELETE request.
type deletion struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}
