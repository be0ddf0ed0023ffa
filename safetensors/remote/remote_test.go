package remote

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// model is a file of a megabyte and a bit.
func model(t testing.TB) (file, large []byte) {
	t.Helper()
	large = make([]byte, 1<<20)
	for i := range large {
		large[i] = byte(i * i >> 8)
	}
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, []safetensors.Entry{
		{Name: "large", DType: safetensors.F32, Shape: []int{512, 512}, Data: large},
		safetensors.EntryOf("small", []int8{1, -2, 3}, 3),
	}, map[string]string{"format": "pt"}))
	return b.Bytes(), large
}

// server serves a file, and counts what is asked of it.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	now, top int // requests at a time

	data []byte
	etag string
	date time.Time
	// before may answer in place of the server, and then returns true.
	before func(n int, w http.ResponseWriter, r *http.Request) bool
}

func serve(t testing.TB, data []byte) *server {
	s := &server{data: data, etag: `"v1"`}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := len(s.requests)
	s.requests = append(s.requests, r)
	s.now++
	s.top = max(s.top, s.now)
	data, etag, date, before := s.data, s.etag, s.date, s.before
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.now--; s.mu.Unlock() }()
	if before != nil && before(n, w, r) {
		return
	}
	if etag != "" {
		w.Header().Set("ETag", etag)
	}
	http.ServeContent(w, r, "x.safetensors", date, bytes.NewReader(data))
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// quick does not wait.
var quick = Options{Backoff: time.Millisecond, Head: 1 << 10}

func open(t *testing.T, s *server, o Options) *safetensors.File {
	t.Helper()
	f, err := Open(t.Context(), s.URL+"/m.safetensors?token=secret#part", o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	return f
}

func lookup(t *testing.T, f *safetensors.File, name string) *safetensors.View {
	t.Helper()
	v, err := f.Lookup(name)
	require.NoError(t, err)
	return v
}

func TestOpen(t *testing.T) {
	file, large := model(t)
	s := serve(t, file)
	o := quick
	o.Header = http.Header{"Authorization": {"Bearer secret"}, "Range": {"bytes=7-8"}}
	f := open(t, s, o)
	assert.Equal(t, 1, s.count(), "one request for a header that fits into the first")
	assert.Equal(t, s.URL+"/m.safetensors", f.Path())
	assert.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
	assert.Equal(t, []string{"large", "small"}, f.Names())

	small := lookup(t, f, "small")
	got, err := safetensors.Read[int8](small)
	require.NoError(t, err)
	assert.Equal(t, []int8{1, -2, 3}, got)
	require.Equal(t, 2, s.count())
	first, second := s.requests[0].Header, s.requests[1].Header
	assert.Equal(t, "bytes=0-1023", first.Get("Range"))
	assert.Empty(t, first.Get("If-Range"))
	for _, h := range []http.Header{first, second} {
		assert.Equal(t, "identity", h.Get("Accept-Encoding"))
		assert.Equal(t, "Bearer secret", h.Get("Authorization"))
	}
	assert.Equal(t, fmt.Sprintf("bytes=%d-%d", len(file)-3, len(file)-1), second.Get("Range"))
	assert.Equal(t, `"v1"`, second.Get("If-Range"))

	require.NoError(t, lookup(t, f, "large").WithBytes(func(data []byte) error {
		assert.True(t, bytes.Equal(large, data))
		return nil
	}))
	row, err := lookup(t, f, "large").Slice(safetensors.Span{From: 100, To: 101})
	require.NoError(t, err)
	before := s.count()
	buffer := make([]byte, row.Len())
	require.NoError(t, row.ReadInto(buffer))
	assert.Equal(t, large[100*2048:101*2048], buffer)
	assert.Equal(t, before+1, s.count())
}

// The header of many tensors takes two requests, whatever its length.
func TestLongHeader(t *testing.T) {
	var entries []safetensors.Entry
	for i := range 2000 {
		entries = append(entries, safetensors.EntryOf(fmt.Sprintf("model.layers.%d.weight", i), []uint8{byte(i)}))
	}
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, entries, nil))
	s := serve(t, b.Bytes())
	f := open(t, s, Options{})
	assert.Equal(t, 2, s.count())
	assert.Equal(t, 2000, f.Len())
	assert.Equal(t, []byte{byte(1999 & 255)}, lookup(t, f, "model.layers.1999.weight").Bytes())
}

func TestReaderAtIsOne(t *testing.T) {
	file, _ := model(t)
	file = file[:1500]
	s := serve(t, file)
	r, err := NewReaderAt(t.Context(), s.URL, Options{Head: 100, Range: 700, Parallel: 3})
	require.NoError(t, err)
	assert.Equal(t, int64(1500), r.Size())
	assert.NoError(t, iotest.TestReader(io.NewSectionReader(r, 0, r.Size()), file))
	n, err := r.ReadAt(make([]byte, 10), 1495)
	assert.Equal(t, 5, n)
	assert.Equal(t, io.EOF, err)
	n, err = r.ReadAt(make([]byte, 10), 1500)
	assert.Zero(t, n)
	assert.Equal(t, io.EOF, err)
	_, err = r.ReadAt(make([]byte, 10), -1)
	assert.ErrorIs(t, err, safetensors.ErrRange)
}

// Large reads come in ranges, several at a time and never more than allowed,
// however many readers there are.
func TestParallelRanges(t *testing.T) {
	file, large := model(t)
	s := serve(t, file)
	s.before = func(int, http.ResponseWriter, *http.Request) bool { time.Sleep(2 * time.Millisecond); return false }
	o := quick
	o.Range, o.Parallel = 64<<10, 3
	f := open(t, s, o)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			assert.NoError(t, lookup(t, f, "large").WithBytes(func(data []byte) error {
				assert.True(t, bytes.Equal(large, data))
				return nil
			}))
		})
	}
	wg.Wait()
	assert.Equal(t, 3, s.top)
	assert.GreaterOrEqual(t, s.count(), 1+3*16)
}

func TestRangeSize(t *testing.T) {
	r := &ReaderAt{options: Options{}.withDefaults()}
	for n, want := range map[int]int{1: 1 << 20, 4 << 20: 1 << 20, 8 << 20: 2 << 20, 16<<20 + 1: 4<<20 + 1, 1 << 30: 8 << 20} {
		assert.Equal(t, want, r.rangeSize(n), n)
	}
	r.options.Range = 1000
	assert.Equal(t, 1000, r.rangeSize(1<<30))
}

// Credentials stay with the host that they are for.
func TestRedirection(t *testing.T) {
	file, _ := model(t)
	storage := serve(t, file)
	hub := serve(t, nil)
	hub.before = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, strings.Replace(storage.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
		return true
	}
	o := quick
	o.Header = http.Header{"Authorization": {"Bearer secret"}}
	f := open(t, hub, o)
	assert.Equal(t, []byte{1, 254, 3}, lookup(t, f, "small").Bytes())
	assert.Equal(t, "Bearer secret", hub.requests[1].Header.Get("Authorization"))
	assert.Empty(t, storage.requests[1].Header.Get("Authorization"))
	assert.Equal(t, `"v1"`, storage.requests[1].Header.Get("If-Range"))
}

func TestWhatIsWrongWithTheFile(t *testing.T) {
	file, _ := model(t)
	s := serve(t, file[:len(file)-1])
	_, err := Open(t.Context(), s.URL+"/m.safetensors", quick)
	assert.ErrorIs(t, err, safetensors.ErrTruncated)
	var format *safetensors.FormatError
	require.ErrorAs(t, err, &format)
	assert.Equal(t, s.URL+"/m.safetensors", format.Path)
}
