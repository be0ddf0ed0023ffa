package hub

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// incomplete is the suffix of a blob during its download.
const incomplete = ".incomplete"

// blob downloads the contents of a file, unless another process is doing it:
// then it waits for that. It reports whether it was this one that did.
func (f *fetcher) blob(ctx context.Context, file remoteFile) (isNew bool, err error) {
	final := f.cache.blob(file.etag)
	part := final + incomplete
	lock, err := fsatomic.Lock(ctx, f.cache.lock(file.etag))
	switch {
	case errors.Is(err, fsatomic.ErrLockUnsupported):
		// A file of its own then: others may write one at the same time.
		part = final + "." + strings.ToLower(rand.Text()[:8]) + incomplete
		defer os.Remove(part)
	case err != nil:
		return false, err
	default:
		defer lock.Unlock()
	}
	if exists(final) {
		return false, nil
	}
	out, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return false, err
	}
	d := &download{fetcher: f, file: file, out: out}
	err = d.run(ctx)
	if err == nil {
		err = out.Sync()
	}
	err = errors.Join(err, out.Close())
	if errors.Is(err, ErrCorrupt) {
		os.Remove(part)
	}
	if err != nil {
		return false, err
	}
	return true, os.Rename(part, final)
}

// download is one blob on its way.
type download struct {
	*fetcher
	file   remoteFile
	out    *os.File
	offset int64     // bytes there
	sum    hash.Hash // of these bytes
	shown  time.Time
}

// run downloads the file, resumes after interruptions, and verifies the hash. A partial file of an earlier download
// is resumed; if the hash of the result is wrong, the file is downloaded once more from the start.
func (d *download) run(ctx context.Context) error {
	resumed, err := d.resume()
	if err != nil {
		return err
	}
	err = d.stream(ctx)
	if errors.Is(err, ErrCorrupt) && resumed {
		if err := d.restart(); err != nil {
			return err
		}
		err = d.stream(ctx)
	}
	return err
}

// stream downloads the rest of the file, reconnecting as long as each connection makes progress.
func (d *download) stream(ctx context.Context) error {
	for d.offset < d.file.size {
		err := d.again(ctx, d.tries, func() error {
			for { // a connection that made progress does not count as a try
				before := d.offset
				err := d.receive(ctx)
				if _, broken := errors.AsType[*temporary](err); !broken || d.offset <= before {
					return err
				}
				if err := sleep(ctx, d.pause); err != nil {
					return err
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return d.verify()
}

// resume hashes the partial file. It reports whether there is one.
func (d *download) resume() (bool, error) {
	d.sum = hashFor(d.file)
	info, err := d.out.Stat()
	if err != nil {
		return false, err
	}
	if info.Size() == 0 {
		return false, nil
	}
	if info.Size() > d.file.size {
		return false, d.restart()
	}
	d.offset, err = io.Copy(d.sum, d.out)
	return true, err
}

// restart discards the partial file.
func (d *download) restart() error {
	d.offset = 0
	d.sum = hashFor(d.file)
	if err := d.out.Truncate(0); err != nil {
		return err
	}
	_, err := d.out.Seek(0, io.SeekStart)
	return err
}

var errStalled = errors.New("no data for too long")

// receive makes one request for the rest and takes what comes.
func (d *download) receive(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, err := d.send(ctx, d.follow, http.MethodGet, d.file.address, d.offset)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := d.accept(resp); err != nil {
		return err
	}
	watch := time.AfterFunc(d.stall, func() { cancel(errStalled) })
	defer watch.Stop()
	buf := make([]byte, 1<<18)
	for {
		n, err := resp.Body.Read(buf)
		watch.Reset(d.stall)
		if d.offset+int64(n) > d.file.size {
			return d.corrupt("it is longer than the %d bytes announced", d.file.size)
		}
		if werr := d.write(buf[:n]); werr != nil {
			return fmt.Errorf("writing %s: %w", d.out.Name(), werr)
		}
		switch {
		case err == io.EOF && d.offset == d.file.size:
			return nil
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
			fallthrough
		case err != nil:
			if context.Cause(ctx) == errStalled {
				return &temporary{err: fmt.Errorf("%w: %s: %w", ErrUnreachable, d.file.name, errStalled)}
			}
			return d.networkError(ctx, err)
		}
	}
}

// accept checks the response to a request for the rest of the file.
func (d *download) accept(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK:
		if d.offset > 0 { // the server knows no ranges
			if err := d.restart(); err != nil {
				return err
			}
		}
		if n := resp.ContentLength; n >= 0 && n != d.file.size {
			return d.corrupt("the server offers %d bytes, the Hub announced %d", n, d.file.size)
		}
		return nil
	case http.StatusPartialContent:
		want := fmt.Sprintf("bytes %d-%d/%d", d.offset, d.file.size-1, d.file.size)
		if got := resp.Header.Get("Content-Range"); got != want {
			return d.corrupt("the server sends %q, expected %q", got, want)
		}
		return nil
	case http.StatusRequestedRangeNotSatisfiable:
		return d.corrupt("the server has no byte %d of %d", d.offset, d.file.size)
	}
	return d.statusError(resp, d.file.name)
}

// write adds bytes to the file.
func (d *download) write(p []byte) error {
	n, err := d.out.Write(p)
	d.offset += int64(n)
	d.sum.Write(p[:n])
	if err == nil && d.progress != nil && time.Since(d.shown) > 50*time.Millisecond && d.offset < d.file.size {
		d.shown = time.Now()
		d.progress(d.file.name, d.offset, d.file.size)
	}
	return err
}

// verify compares the hash of the whole file with its etag.
func (d *download) verify() error {
	if !isHash(d.file.etag) {
		return nil
	}
	if got := hex.EncodeToString(d.sum.Sum(nil)); got != d.file.etag {
		return d.corrupt("its hash is %s, expected %s", got, d.file.etag)
	}
	return nil
}

func (d *download) corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s, file %s: %s", ErrCorrupt, d.repo, d.file.name, fmt.Sprintf(format, args...))
}

func isHash(etag string) bool {
	return (len(etag) == 2*sha256.Size || len(etag) == 2*sha1.Size) && isHex(etag)
}

// hashFor returns the hash function of a file's etag: SHA-256 for large files (Git LFS, Xet), else SHA-1 as git uses it.
// Other kinds of etags are not verified.
func hashFor(f remoteFile) hash.Hash {
	if len(f.etag) == 2*sha1.Size {
		return gitHash(f.size)
	}
	return sha256.New()
}

// gitHash returns the hash function that git names files of a size by.
func gitHash(size int64) hash.Hash {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", size)
	return h
}
