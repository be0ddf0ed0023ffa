package cli

import (
	"crypto/tls"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// certificate is the TLS certificate of the server. Its two files are read again when they change, as certificate
// renewal requires.
type certificate struct {
	files [2]string // the certificate, its key
	log   *slog.Logger

	mu     sync.Mutex
	looked time.Time
	seen   []os.FileInfo
	pair   *tls.Certificate
}

// lookAgain is after how long a look at the files is out of date.
const lookAgain = time.Second

func newCertificate(cert, key string, log *slog.Logger) (*certificate, error) {
	c := &certificate{files: [2]string{cert, key}, log: log}
	return c, c.read()
}

// read reads both files if they have changed.
func (c *certificate) read() error {
	var now []os.FileInfo
	for _, file := range c.files {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		now = append(now, info)
	}
	same := func(x, y os.FileInfo) bool {
		return os.SameFile(x, y) && x.Size() == y.Size() && x.ModTime().Equal(y.ModTime())
	}
	if slices.EqualFunc(now, c.seen, same) {
		return nil
	}
	c.seen = now // report errors of these files once
	pair, err := tls.LoadX509KeyPair(c.files[0], c.files[1])
	if err != nil {
		return err
	}
	c.pair = &pair
	return nil
}

// current returns the certificate for a connection. If the files are invalid, it returns the previous one.
func (c *certificate) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) > lookAgain {
		c.looked = time.Now()
		if err := c.read(); err != nil {
			c.log.Warn("--tls-cert, --tls-key: the certificate stays what it was", "error", err)
		}
	}
	return c.pair, nil
}
