// Package webpage contains the web page of a server: chat, fine-tuning and the server's state. The
// page uses only the public HTTP API and loads nothing from other hosts.
package webpage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

//go:embed page
var page embed.FS

// policy is the page's Content-Security-Policy. It allows the files of this package and requests to
// the page's own server; it forbids inline scripts and scripts created from strings.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// index is the HTML document. It refers to its files as if they were in the folder assets.
const index, assets = "index.html", "assets/"

// Routes returns the handlers of the page at / and its files below /page/, by patterns of
// [http.ServeMux]. The path of a file contains the digest of all files, so browsers may cache it
// forever, and files of different versions are never mixed.
func Routes() map[string]http.Handler {
	files := map[string][]byte{}
	entries, err := page.ReadDir("page")
	for _, e := range entries {
		if err == nil {
			files[e.Name()], err = fs.ReadFile(page, path.Join("page", e.Name()))
		}
	}
	if err != nil {
		panic(err) // embedded files are readable
	}
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all.Write(files[name])
	}
	folder := "page/" + hex.EncodeToString(all.Sum(nil))[:16] + "/"
	files[index] = bytes.ReplaceAll(files[index], []byte(assets), []byte(folder))
	routes := map[string]http.Handler{"GET /{$}": file{index, files[index], "no-cache"}}
	for name, content := range files {
		if name != index {
			routes["GET /"+folder+name] = file{name, content, "public, max-age=31536000, immutable"}
		}
	}
	return routes
}

// file serves one file.
type file struct {
	name    string
	content []byte
	cache   string // value of Cache-Control
}

// types are the MIME types by file extension, independent of the operating system's table.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// ServeHTTP implements http.Handler.
func (f file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	digest := sha256.Sum256(f.content)
	h := w.Header()
	h.Set("Content-Type", types[path.Ext(f.name)])
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", f.cache)
	h.Set("ETag", `"`+hex.EncodeToString(digest[:16])+`"`)
	http.ServeContent(w, r, f.name, time.Time{}, strings.NewReader(string(f.content)))
}
