package cli

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
)

// A run that steps is well; one that has stopped, one that does not answer and
// somebody else's server are not.
func TestHealth(t *testing.T) {
	a := &app{out: &output{w: &strings.Builder{}}, err: &strings.Builder{}}
	w, err := a.watch("127.0.0.1:0")
	require.NoError(t, err)
	addr := w.server.Addr()
	assert.Equal(t, "the run has not ended its first step\n", succeed(t, "health", "--metrics-addr", addr))
	assert.Equal(t, runHealth{Address: addr, Running: true}, decode[runHealth](t, succeed(t, "health", "--metrics-addr", addr, "--json")))
	w.see(train.Report{Step: 3, Steps: 10})
	assert.Regexp(t, `^step 3 of 10 ended \ds ago\n$`, succeed(t, "health", "--metrics-addr", addr))
	h := decode[runHealth](t, succeed(t, "health", "--metrics-addr", addr, "--json"))
	require.NotNil(t, h.SecondsAgo)
	assert.Equal(t, runHealth{addr, true, 3, 10, h.SecondsAgo}, h)
	_, err = askHealth(t.Context(), addr, time.Minute, time.Now().Add(time.Hour))
	require.ErrorContains(t, err, "step 3 of 10 ended 1h0m0s ago, and none since")
	require.NoError(t, w.close())
	assert.Contains(t, succeed(t, "health", "--metrics-addr", addr), "nobody listens")
	a.close()

	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "up 1") }))
	defer other.Close()
	refuses(t, other.Listener.Addr().String(), "no run of this program")
	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()
	refuses(t, broken.Listener.Addr().String(), "404")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	refuses(t, silent.Addr().String(), "deadline exceeded")
}

func refuses(t *testing.T, addr, says string) {
	t.Helper()
	r := command(t, "", "health", "--timeout", "300ms", "--metrics-addr", addr)
	assert.Equal(t, ExitDifferent, r.status)
	assert.Contains(t, r.stderr, says)
}
