package cli

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exchange sends bytes in pieces of a size and returns the statuses of the answers until the
// server closes the connection, or until there are so many that must be.
func exchange(t *testing.T, c net.Conn, text string, piece, want int) (statuses []int, bodies []string) {
	t.Helper()
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	go func() {
		for ; text != ""; text = text[min(piece, len(text)):] {
			if _, err := io.WriteString(c, text[:min(piece, len(text))]); err != nil {
				return
			}
		}
	}()
	r := bufio.NewReader(c)
	for want < 0 || len(statuses) < want {
		a, err := http.ReadResponse(r, nil)
		if err != nil {
			require.NotContains(t, err.Error(), "timeout")
			return statuses, bodies
		}
		body, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		statuses, bodies = append(statuses, a.StatusCode), append(bodies, string(body))
	}
	return statuses, bodies
}

// A request with two lengths is refused and its connection closed, whatever stands before it,
// and however it arrives. Others are answered, and what stands in bodies is no header.
func TestServeFraming(t *testing.T) {
	const (
		head    = "POST / HTTP/1.1\r\nHost: localhost\r\n"
		chunked = "Transfer-Encoding: chunked\r\n"
		chunks  = "3\r\nabc\r\n0\r\n\r\n"
		fake    = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
		next    = "GET /next HTTP/1.1\r\nHost: localhost\r\n\r\n"
	)
	for name, c := range map[string]struct {
		text     string
		statuses []int
		open     bool // the connection
	}{
		"length first":       {head + "Content-Length: 5\r\n" + chunked + "\r\n" + chunks + next, []int{400}, false},
		"length last":        {head + chunked + "Content-Length: 13\r\n\r\n" + chunks + next, []int{400}, false},
		"other case":         {head + "content-length:13\r\nTRANSFER-ENCODING:\tchunked\r\n\r\n" + chunks + next, []int{400}, false},
		"bare line ends":     {strings.ReplaceAll(head+"Content-Length: 5\r\n"+chunked+"\r\n", "\r", "") + chunks + next, []int{400}, false},
		"zero length":        {head + "Content-Length: 0\r\n" + chunked + "\r\n" + chunks + next, []int{400}, false},
		"HTTP/1.0":           {"POST / HTTP/1.0\r\nHost: localhost\r\nContent-Length: 3\r\n" + chunked + "\r\nabc" + next, []int{400}, false},
		"behind others":      {next + head + "Content-Length: 4\r\n\r\nabcd" + head + "Content-Length: 5\r\n" + chunked + "\r\n" + chunks + next, nil, false},
		"one length":         {head + "Content-Length: 3\r\n\r\nabc" + next, []int{200, 200}, true},
		"headers in a body":  {head + "Content-Length: 51\r\n\r\n" + fake + next, []int{200, 200}, true},
		"headers in a chunk": {head + chunked + "\r\n33\r\n" + fake + "\r\n0\r\n\r\n" + next, []int{200}, false},
		"chunks alone":       {head + chunked + "\r\n" + chunks + next, []int{200}, false},
	} {
		for _, piece := range []int{1, 7, len(c.text)} {
			d := openDoor(t)
			d.admit(&service{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })})
			conn, err := net.Dial("tcp", d.listener.Addr().String())
			require.NoError(t, err)
			want := -1
			if c.open {
				want = len(c.statuses)
			}
			statuses, bodies := exchange(t, conn, c.text, piece, want)
			if c.statuses == nil { // those before may be refused with it
				require.NotEmpty(t, statuses, name)
				assert.Equal(t, 400, statuses[len(statuses)-1], name)
				assert.LessOrEqual(t, len(statuses), 3, name)
				continue
			}
			assert.Equal(t, c.statuses, statuses, "%s in pieces of %d", name, piece)
			if statuses[0] == 400 {
				assert.Equal(t, "two_lengths", decode[struct{ Error struct{ Code string } }](t, bodies[0]).Error.Code)
			}
		}
	}
}

// With TLS a request with chunks is the last one of its connection.
func TestServeFramingTLS(t *testing.T) {
	cert, key, pool := newLab(t).certificate()
	d, err := (&serveFlags{listen: "127.0.0.1:0", tlsCert: cert, tlsKey: key}).open(serverKeys{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(d.close)
	d.admit(&service{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })})
	conn, err := tls.Dial("tcp", d.listener.Addr().String(), &tls.Config{RootCAs: pool})
	require.NoError(t, err)
	statuses, _ := exchange(t, conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1<<10, -1)
	assert.Equal(t, []int{200}, statuses)
}

// Which hosts may be asked for depends on keys and on the address.
func TestServeGuard(t *testing.T) {
	here, all := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv6zero}
	withKey := serverKeys{users: []string{"k"}}
	for _, c := range []struct {
		flags serveFlags
		keys  serverKeys
		at    *net.TCPAddr
		hosts []string
		any   bool // IP address
	}{
		{serveFlags{listen: "127.0.0.1:8000"}, serverKeys{}, here, []string{"127.0.0.1"}, false},
		{serveFlags{listen: "127.0.0.1:8000"}, withKey, here, []string{"127.0.0.1"}, false},
		{serveFlags{listen: ":8000"}, serverKeys{}, all, nil, true},
		{serveFlags{listen: ":8000", allowedHosts: []string{"lora"}}, serverKeys{}, all, []string{"lora"}, true},
		{serveFlags{listen: "lora.example:8000"}, serverKeys{}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, []string{"lora.example"}, true},
		{serveFlags{listen: ":8000"}, withKey, all, []string{"*"}, true},
	} {
		g := c.flags.guard(c.keys, c.at)
		assert.Equal(t, c.hosts, g.Hosts, "%s", c.flags.listen)
		assert.Equal(t, c.any, g.Addresses, "%s", c.flags.listen)
	}
}

// A server without keys is neither read through a name that leads to it nor written to by a
// page of another site, whatever answers there.
func TestServeRefusesOtherSites(t *testing.T) {
	d := openDoor(t)
	d.admit(&service{handler: http.NotFoundHandler()})
	for _, c := range []struct {
		method, host, origin string
		want                 int
	}{
		{"GET", "", "", 404}, {"GET", "evil.example", "", 421}, {"DELETE", "evil.example:8102", "", 421}, {"GET", "localhost:1", "", 404},
		{"POST", "", "https://evil.example", 403}, {"POST", "", "", 404},
	} {
		r, err := http.NewRequest(c.method, d.url()+"/v1/files", nil)
		require.NoError(t, err)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}
		a, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		require.NoError(t, err)
		a.Body.Close()
		assert.Equal(t, c.want, a.StatusCode, "%+v", c)
	}
}
