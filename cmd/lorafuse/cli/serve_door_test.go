package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
)

// openDoor opens one on a free port.
func openDoor(t *testing.T) *door {
	t.Helper()
	d, err := (&serveFlags{listen: "127.0.0.1:0"}).open(serverKeys{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(d.close)
	return d
}

// status asks at a door.
func (d *door) status(t *testing.T, path string) (int, http.Header, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	a, err := c.Get(d.url() + path)
	require.NoError(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return a.StatusCode, a.Header, string(text)
}

// Before there is a model the server runs and is not ready.
func TestDoorWhileLoading(t *testing.T) {
	d := openDoor(t)
	for _, path := range []string{"/health", "/ping"} {
		status, _, _ := d.status(t, path)
		assert.Equal(t, http.StatusOK, status, path)
	}
	for _, path := range []string{"/ready", "/v1/models", "/metrics"} {
		status, h, text := d.status(t, path)
		assert.Equal(t, http.StatusServiceUnavailable, status, path)
		assert.Equal(t, "5", h.Get("Retry-After"))
		assert.Equal(t, "loading", decode[struct{ Error struct{ Code string } }](t, text).Error.Code)
	}
	d.admit(&service{handler: http.NotFoundHandler()})
	status, _, _ := d.status(t, "/ready")
	assert.Equal(t, http.StatusNotFound, status, "that of the service")
}

// slow is a service with a request that ends when it is told to, or cut.
func slow(begun, end chan struct{}) *service {
	cut := make(chan struct{})
	left := make(chan struct{})
	return &service{
		handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/long" {
				return
			}
			defer close(left)
			close(begun)
			select {
			case <-end:
				io.WriteString(w, "whole")
			case <-cut:
				io.WriteString(w, "cut")
			case <-r.Context().Done():
			}
		}),
		drain: func(ctx context.Context) error {
			select {
			case <-left:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		cut: func() { close(cut) },
	}
}

// While a server drains it can be asked how it is, and what is under way ends.
func TestDoorDrains(t *testing.T) {
	d := openDoor(t)
	begun, end := make(chan struct{}), make(chan struct{})
	s := slow(begun, end)
	d.admit(s)
	answer := make(chan string)
	go func() {
		_, _, text := d.status(t, "/long")
		answer <- text
	}()
	<-begun
	drained := make(chan error)
	go func() { drained <- d.drain(s, time.Minute) }()
	status, _, _ := d.status(t, "/ready")
	assert.Equal(t, http.StatusOK, status, "the service is asked")
	close(end)
	assert.Equal(t, "whole", <-answer)
	require.NoError(t, <-drained)
	_, err := net.Dial("tcp", d.listener.Addr().String())
	assert.Error(t, err)
}

// What takes too long is cut, and its client is told.
func TestDoorCuts(t *testing.T) {
	d := openDoor(t)
	begun := make(chan struct{})
	s := slow(begun, nil)
	d.admit(s)
	answer := make(chan string)
	go func() {
		_, _, text := d.status(t, "/long")
		answer <- text
	}()
	<-begun
	require.ErrorIs(t, d.drain(s, time.Millisecond), context.DeadlineExceeded)
	assert.Equal(t, "cut", <-answer)
}

// Who is closed to while inside is out when the door is closed.
func TestDoorCloses(t *testing.T) {
	d := openDoor(t)
	begun, left := make(chan struct{}), false
	d.admit(&service{handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		left = true
	})})
	failed := make(chan error)
	go func() {
		_, err := http.Get(d.url() + "/long")
		failed <- err
	}()
	<-begun
	d.close()
	assert.True(t, left)
	assert.Error(t, <-failed)
}

// certificate writes a certificate for 127.0.0.1 and its key.
func (l *lab) certificate() (cert, key string, pool *x509.CertPool) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(l.t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	raw, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	require.NoError(l.t, err)
	rawKey, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(l.t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	pool = x509.NewCertPool()
	require.True(l.t, pool.AppendCertsFromPEM(text))
	return l.file("cert.pem", string(text)), l.file("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rawKey}))), pool
}

func TestServeTLS(t *testing.T) {
	cert, key, pool := newLab(t).certificate()
	r := startServe(t, "--model", llama, "--tls-cert", cert, "--tls-key", key)
	assert.True(t, strings.HasPrefix(r.url, "https://"))
	_, err := r.client.Get(r.url + "/ready")
	var unknown x509.UnknownAuthorityError
	require.True(t, errors.As(err, &unknown), err)
	r.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	a, err := r.client.Get(r.url + "/ready")
	require.NoError(t, err)
	a.Body.Close()
	assert.Equal(t, http.StatusOK, a.StatusCode)
	assert.Equal(t, 2, a.ProtoMajor)
	assert.Equal(t, ExitOK, r.stop())
}

// A certificate that is renewed is shown from then on; files that are no good change
// nothing.
func TestServeCertificate(t *testing.T) {
	l := newLab(t)
	cert, key, _ := l.certificate()
	var log bytes.Buffer
	c, err := newCertificate(cert, key, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	shown := func() string {
		c.looked = time.Time{}
		pair, err := c.current(nil)
		require.NoError(t, err)
		return string(pair.Certificate[0])
	}
	first := shown()
	l.certificate() // into the same files
	second := shown()
	require.NotEqual(t, first, second)
	require.Empty(t, log.String())
	l.file("key.pem", "no key")
	require.Equal(t, second, shown())
	require.Equal(t, second, shown())
	require.Equal(t, 1, strings.Count(log.String(), "stays what it was"))
	require.NoError(t, os.Remove(cert))
	require.Equal(t, second, shown())
	l.certificate()
	require.NotEqual(t, second, shown())
}

// What is wrong is said with the flag's name.
func TestServeRefuses(t *testing.T) {
	l := newLab(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	cert, key, _ := l.certificate()
	model := []string{"--model", llama, "--listen", "127.0.0.1:0"}
	with := func(args ...string) []string { return append(append([]string(nil), model...), args...) }
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{ExitUsage, "--model is missing", []string{"--listen", "127.0.0.1:0"}},
		{ExitUsage, `--listen: found "8000", expected HOST:PORT or :PORT`, []string{"--model", llama, "--listen", "8000"}},
		{ExitUsage, "--listen: listen tcp: address 99999: invalid port", []string{"--model", llama, "--listen", ":99999"}},
		{ExitFailure, "--listen: another program listens on " + busy.Addr().String(), []string{"--model", llama, "--listen", busy.Addr().String()}},
		{ExitUsage, `--allow-origin: serve: found "chat.example", expected an origin such as https://chat.example.com`, with("--allow-origin", "chat.example")},
		{ExitUsage, `--allowed-host: found "http://lora.example", expected a name or an address`, with("--allowed-host", "http://lora.example")},
		{ExitUsage, "--tls-cert and --tls-key go together", with("--tls-cert", cert)},
		{ExitUsage, "--tls-cert, --tls-key: ", with("--tls-cert", key, "--tls-key", cert)},
		{ExitUsage, `--adapter: found "sql", expected NAME=DIR`, with("--adapter", "sql")},
		{ExitUsage, `--adapter: "a" is x and y`, with("--adapter", "a=x", "--adapter", "a=y")},
		{ExitUsage, `--adapter: "model" is the name of the model`, with("--adapter", "model="+llamaLoRA)},
		{ExitUsage, `--adapter a,b: lora: bad name: "a,b" has ',' in it`, with("--adapter", "a,b="+llamaLoRA)},
		{ExitUsage, "--adapter a: ", with("--adapter", "a="+l.path("missing"))},
		{ExitUsage, "--adapter a, --adapter-host-memory: ", with("--adapter", "a="+llamaLoRA, "--adapter-host-memory", "1KiB")},
		{ExitUsage, `--adapter-host-memory: found "much", expected bytes`, with("--adapter-host-memory", "much")},
		{ExitUsage, "--adapters-dir: ", with("--adapters-dir", l.path("missing"))},
		{ExitUsage, "--adapters-dir: " + cert + " is no folder", with("--adapters-dir", cert)},
		{ExitUsage, "--allow-adapter-updates needs --adapters-dir", with("--allow-adapter-updates")},
		{ExitUsage, "--admin-key is for --allow-adapter-updates", with("--admin-key", "k")},
		{ExitUsage, "--api-key: a key is empty", with("--api-key", " ")},
		{ExitUsage, "--api-key-file: a key has 2 spaces in it, expected KEY or NAME KEY", with("--api-key-file", l.file("spaced", "a b c"))},
		{ExitUsage, "--api-key-file: " + l.path("none") + " has no key", with("--api-key-file", l.file("none", "\n\n"))},
		{ExitUsage, "--api-key-file: open ", with("--api-key-file", l.path("missing"))},
		{ExitUsage, "--max-num-seqs: found 0, expected 1 or more", with("--max-texts", "0")},
		{ExitUsage, "--train-share: found 1, expected more than 0 and less than 1", with("--train-share", "1")},
		{ExitUsage, "--train-jobs is for --train-dir, which is not given", with("--train-jobs", "2")},
		{ExitUsage, "--train-jobs: found 0, expected 1 or more", with("--train-dir", l.path("tuning"), "--train-jobs", "0")},
		{ExitUsage, "--max-file-size: found \"big\", expected bytes, such as 2GiB", with("--train-dir", l.path("tuning"), "--max-file-size", "big")},
		{ExitUsage, "--max-files-size: found \"0\", expected bytes, such as 2GiB", with("--train-dir", l.path("tuning"), "--max-files-size", "0")},
		{ExitUsage, `--devices: found "", expected "all" or indices such as "0,2"`, with("--devices", "")},
		{ExitUsage, "--devices: found device 1, expected 0, the only one; lorafuse devices lists them, and a CPU is one", with("--backend", backend.CPU, "--devices", "0,1")},
		{ExitUsage, `--devices: found "al", expected "all" or indices such as "0,2", did you mean "all"?`, with("--backend", backend.CPU, "--devices", "al")},
		{ExitUsage, "--max-queue: found -1, expected 1 or more", with("--max-queue", "-1")},
		{ExitUsage, "--drain-timeout: found \"5\", expected a time, such as 90s or 5m", with("--drain-timeout", "5")},
		{ExitUsage, "--drain-timeout: found -1s", with("--drain-timeout", "-1s")},
		{ExitUsage, `--trace-url: traces: found "localhost:4318", expected`, with("--trace-url", "localhost:4318")},
		{ExitUsage, `--log: found "xml", expected text or json`, with("--log", "xml")},
		{ExitUsage, "--max-model-len: ", with("--max-length", "100000")},
		{ExitUsage, "--max-model-len, --cache-tokens: batching: ", with("--cache-tokens", "16", "--max-length", "32")},
		{ExitUsage, "--chat-template: ", with("--chat-template", l.path("missing"))},
		{ExitUsage, "--adapter: not supported for the embedding model " + encoders + "/bert", []string{"--model", encoders + "/bert", "--listen", "127.0.0.1:0", "--adapter", "a=b"}},
		{ExitUsage, "--devices: not supported for the embedding model " + encoders + "/bert, which is served on one device", []string{"--model", encoders + "/bert", "--listen", "127.0.0.1:0", "--devices", "all"}},
	} {
		r := command(t, "", append([]string{"serve"}, c.args...)...)
		assert.Equal(t, c.status, r.status, "%v: %s", c.args, r.stderr)
		assert.Contains(t, r.stderr, c.want, "%v", c.args)
		assert.LessOrEqual(t, strings.Count(r.stderr, "\n"), 2, r.stderr)
		assert.Empty(t, r.stdout)
	}
}

// Nobody is warned of a server that only this machine reaches.
func TestServeWarns(t *testing.T) {
	here, all := &net.TCPAddr{IP: net.IPv6loopback}, &net.TCPAddr{IP: net.IPv6zero}
	assert.Empty(t, serverKeys{}.warning(here, true))
	assert.Contains(t, serverKeys{}.warning(all, true), "--api-key")
	assert.Contains(t, serverKeys{users: []string{"k"}}.warning(all, true), "--admin-key")
	assert.Empty(t, serverKeys{users: []string{"k"}}.warning(all, false))
	assert.Empty(t, serverKeys{users: []string{"k"}, admins: []string{"a"}}.warning(all, true))
}
