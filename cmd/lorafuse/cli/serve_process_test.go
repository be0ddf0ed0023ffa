//go:build unix

package cli

import (
	"bufio"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestServeSignals: the first signal lets a request under way end, a second one ends
// the program at once.
func TestServeSignals(t *testing.T) {
	for _, patient := range []bool{true, false} {
		c, _ := program(t, "serve", "--model", llama, "--listen", "127.0.0.1:0", "--drain-timeout", "5m")
		c.Stderr = nil
		log, err := c.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		lines := bufio.NewScanner(log)
		await := func(word string) string {
			for lines.Scan() {
				if strings.Contains(lines.Text(), word) {
					return lines.Text()
				}
			}
			require.Fail(t, "the log ends without "+word)
			return ""
		}
		at := servingAt.FindStringSubmatch(await("serving"))[1]
		conn, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
		require.NoError(t, err)
		body := `{"prompt": "Once", "max_tokens": 3}`
		_, err = io.WriteString(conn, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 35\r\nExpect: 100-continue\r\n\r\n")
		require.NoError(t, err)
		answer := bufio.NewReader(conn)
		line, err := answer.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, "100", "the server reads the body")
		require.NoError(t, c.Process.Signal(syscall.SIGTERM))
		await("ending")
		ended := make(chan error, 1)
		if patient {
			_, err = io.WriteString(conn, body)
			require.NoError(t, err)
			rest, err := io.ReadAll(answer)
			require.NoError(t, err)
			assert.Contains(t, string(rest), "HTTP/1.1 200 OK")
			await("msg=ended")
		}
		go func() { ended <- c.Wait() }()
		for again := !patient; again; {
			c.Process.Signal(syscall.SIGTERM)
			select {
			case err := <-ended:
				ended <- err
				again = false
			case <-time.After(10 * time.Millisecond):
			}
		}
		err = <-ended
		conn.Close()
		if patient {
			assert.NoError(t, err)
			continue
		}
		state, ok := c.ProcessState.Sys().(syscall.WaitStatus)
		require.True(t, ok)
		assert.Equal(t, syscall.SIGTERM, state.Signal())
	}
}
