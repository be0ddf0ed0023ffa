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

// Options say how a file is read. Where a field is zero, the value named here is
// used.
type Options struct {
	// Client makes the requests. By default one that keeps as many connections
	// as it needs. It should not have a Timeout, which would cut long answers
	// off: Stall and the context are for that. Where it has no CheckRedirect,
	// that of this package is used.
	Client *http.Client
	// Header is sent with every request, such as Authorization. As with all of
	// net/http, credentials do not follow a redirection to another host.
	Header http.Header
	// Parallel is the number of ranges that are fetched at a time: 4.
	Parallel int
	// Range is the number of bytes of a range that are asked for at most: 8 MiB.
	Range int64
	// Head is the number of bytes that are asked for first: 64 KiB.
	Head int64
	// Retries is how often a range is asked for again: 5 times; -1 for never.
	Retries int
	// Backoff is how long to wait before that, twice as long each time, up to
	// 30 s: 250 ms. A server that names a time with Retry-After has its way, up
	// to two minutes.
	Backoff time.Duration
	// Stall is how long to wait for the next byte of an answer: 30 s.
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
	o.Range = min(o.Range, 1<<30) // an int on every machine
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

// defaultClient is that of net/http, but for the number of idle connections to
// one host: with two, every further range would connect anew.
var defaultClient = sync.OnceValue(func() *http.Client {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultClient
	}
	transport = transport.Clone()
	transport.MaxIdleConnsPerHost = 16
	return &http.Client{Transport: transport}
})

// Open opens the file at an http or https URL, as safetensors.OpenReaderAt does:
// its header is read and checked now, its tensors when they are asked for. The
// context is that of all requests, those of later reads included. Path is the
// URL without user, query and fragment, which may be secret.
//
// It fails as safetensors.Open does for what is wrong with the file; with a
// *StatusError, ErrNoRanges, ErrChanged, ErrResponse, ErrRedirect and ErrStalled
// for what is wrong with the server; and with the error of the connection. Reads of its
// tensors that fail wrap the same errors and safetensors.ErrFault.
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
	slots   chan struct{} // one for each range that may be fetched at a time
	version version
	head    []byte // the first bytes of the file
}

// NewReaderAt makes the first request for a file, for its size, its version and
// its first bytes. It fails like Open.
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

// Size is the size of the file in bytes.
func (r *ReaderAt) Size() int64 { return r.version.size }

// Name is the URL without what may be secret: user, query and fragment.
func (r *ReaderAt) Name() string { return r.name }

// ReadAt reads from the file as io.ReaderAt says.
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

// withoutURL is the cause of an error that names a URL, which may be secret.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
