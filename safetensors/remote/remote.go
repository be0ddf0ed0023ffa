package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/safetensors"
)

// Options configure how a file is read. Zero fields select the default values
// named here.
type Options struct {
	// Client makes the requests. The default client keeps as many idle
	// connections as it needs. A client should not have a Timeout, which would
	// interrupt long responses: use Stall and the context instead. If it has no
	// CheckRedirect, the function of that name in this package is used.
	Client *http.Client
	// Header is sent with every request, for example Authorization. As usual in
	// net/http, credentials are not sent to other hosts after a redirect.
	Header http.Header
	// Parallel is the maximum number of concurrent range requests. Zero means
	// 4.
	Parallel int
	// Range is the maximum size of a range in bytes. Zero means 8 MiB.
	Range int64
	// Head is the number of bytes in the first request. Zero means 64 KiB.
	Head int64
	// Retries is the maximum number of retries of a range. Zero means 5, -1
	// means none.
	Retries int
	// Backoff is the delay before the first retry; it doubles with each retry,
	// up to 30 s. Zero means 250 ms. A server can request a longer delay, up to
	// two minutes, with Retry-After.
	Backoff time.Duration
	// Stall is the maximum time to wait for the next byte of a response. Zero
	// means 30 s.
	Stall time.Duration
}

func (o Options) withDefaults() Options {
	if o.Client == nil {
		o.Client = defaultClient()
	}
	if o.Client.CheckRedirect == nil {
		client := *o.Client
		client.CheckRedirect = CheckRedirect
		o.Client = &client
	}
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	if o.Range <= 0 {
		o.Range = 8 << 20
	}
	o.Range = min(o.Range, 1<<30) // so that it fits an int on every machine
	if o.Head <= 0 {
		o.Head = 64 << 10
	}
	if o.Retries == 0 {
		o.Retries = 5
	}
	if o.Backoff <= 0 {
		o.Backoff = 250 * time.Millisecond
	}
	if o.Stall <= 0 {
		o.Stall = 30 * time.Second
	}
	return o
}

// defaultClient returns a client with the settings of net/http, except for more
// idle connections to one host: with the default of two, most ranges would need
// a new connection.
var defaultClient = sync.OnceValue(func() *http.Client {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultClient
	}
	transport = transport.Clone()
	transport.MaxIdleConnsPerHost = 16
	return &http.Client{Transport: transport}
})

// Open opens the file at an http or https URL, like safetensors.OpenReaderAt: it reads
// and checks the header immediately, and tensors on demand. The context applies to all
// requests, including those of later reads. Path returns the URL without user, query
// and fragment, which may be secret.
//
// Open fails with the errors of safetensors.Open for an invalid file; with a
// *StatusError, ErrNoRanges, ErrChanged, ErrResponse, ErrRedirect or ErrStalled for
// server errors; and with the error of the connection. Failed reads of tensors wrap the
// same errors and safetensors.ErrFault.
func Open(ctx context.Context, url string, o Options) (*safetensors.File, error) {
	r, err := NewReaderAt(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return safetensors.OpenReaderAt(r, r.Size(), r.Name())
}

// ReaderAt reads any file over HTTP. It is safe for concurrent use.
type ReaderAt struct {
	ctx     context.Context
	url     string
	name    string
	options Options
	slots   chan struct{} // one per concurrent range request
	version version
	head    []byte // the first bytes of the file
}

// NewReaderAt makes the first request for a file, which returns its size, its
// version and its first bytes. It fails like Open.
func NewReaderAt(ctx context.Context, address string, o Options) (*ReaderAt, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", withoutURL(err))
	}
	name := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("remote: %s: not the URL of a file on an HTTP server: %w", name, errors.ErrUnsupported)
	}
	o = o.withDefaults()
	r := &ReaderAt{ctx: ctx, url: address, name: name, options: o, slots: make(chan struct{}, o.Parallel)}
	if err := r.open(); err != nil {
		return nil, fmt.Errorf("remote: %s: %w", name, err)
	}
	return r, nil
}

// Size returns the size of the file in bytes.
func (r *ReaderAt) Size() int64 { return r.version.size }

// Name returns the URL without its secret parts: user, query and fragment.
func (r *ReaderAt) Name() string { return r.name }

// ReadAt implements io.ReaderAt.
func (r *ReaderAt) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("remote: %s: read at %d: %w", r.name, off, safetensors.ErrRange)
	}
	wanted := p[:min(int64(len(p)), max(0, r.version.size-off))]
	if off < int64(len(r.head)) {
		n = copy(wanted, r.head[off:])
	}
	if n < len(wanted) {
		read, err := r.fetch(wanted[n:], off+int64(n))
		n += read
		if err != nil {
			return n, fmt.Errorf("remote: %s: %w", r.name, err)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// withoutURL returns the cause of an error that contains a URL, which may be
// secret.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
