//go:build unix

package hub

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/testhub"
)

func TestKilledInTheMiddle(t *testing.T) {
	h, o := setup(t)
	// The lock orders this before the handlers: no request of this process does.
	h.Spoil(testhub.Fault{Cut: 120_000, Stall: true})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HUB_TEST_KILLED="+h.Server.URL+" "+o.Cache)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		info, err := os.Stat(blobPath(o) + incomplete)
		return err == nil && info.Size() == 120_000
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	cmd.Wait()

	dir, err := Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	assert.Equal(t, weights, read(t, dir+"/model.safetensors"))
	assert.Equal(t, []string{"", "bytes=120000-"}, h.Ranges())
}
