package tinker

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/web"
	"github.com/lorafuse/lorafuse/lora"
)

// This file serves the files of PEFT adapters. URLs are signed, since the downloader has no key.

// signer signs URLs. Only the same signer can verify them.
type signer [32]byte

func newSigner() (s signer) {
	rand.Read(s[:])
	return s
}

// sign returns the signature of a file, valid until a time.
func (s *signer) sign(file string, until int64) string {
	h := hmac.New(sha256.New, s[:])
	fmt.Fprintf(h, "%d %s", until, file)
	return hex.EncodeToString(h.Sum(nil))
}

// urlLife is the lifetime of a signed URL.
const urlLife = time.Hour

// files are the files that can be downloaded.
var files = []string{lora.ConfigFile, lora.WeightsFile}

func (s *Server) externalURLs(c *web.Call) error {
	p, err := s.checkpoint(c)
	if err != nil {
		return err
	}
	if p.Kind != externalKind.folder {
		return invalid("found %s, expected external_weights", p.URI())
	}
	base := "http://" + c.Request.Host
	if c.Request.TLS != nil || c.Request.Header.Get("X-Forwarded-Proto") == "https" {
		base = "https://" + c.Request.Host
	}
	until := time.Now().Add(urlLife).Truncate(time.Second)
	urls := map[string]string{}
	for _, file := range files {
		at := path.Join(p.Run, p.Name, file)
		q := url.Values{"expires": {strconv.FormatInt(until.Unix(), 10)}, "signature": {s.signature.sign(at, until.Unix())}}
		urls[file] = base + root + "external_weights/" + at + "?" + q.Encode()
	}
	return c.JSON(map[string]any{"urls": urls, "expires": until.UTC()})
}

func (s *Server) download(c *web.Call) error {
	r := c.Request
	run, name, file := r.PathValue("run"), r.PathValue("name"), r.PathValue("file")
	until, err := strconv.ParseInt(r.URL.Query().Get("expires"), 10, 64)
	right := s.signature.sign(path.Join(run, name, file), until)
	if err != nil || !hmac.Equal([]byte(right), []byte(r.URL.Query().Get("signature"))) || time.Now().Unix() > until {
		return &web.Failure{Status: http.StatusForbidden, Message: "the URL is not signed, or too old"}
	}
	p, err := s.store.at(keys.Client{}, run, externalKind.folder, name)
	if err != nil {
		return err
	}
	if !slices.Contains(files, file) {
		return notFound("file %.100q", file)
	}
	f, err := s.store.root.Open(path.Join(p.Dir, adapterFolder, file))
	if errors.Is(err, fs.ErrNotExist) {
		return notFound("file %.100q", file)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	c.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(c, c.Request, "", info.ModTime(), f)
	return nil
}
