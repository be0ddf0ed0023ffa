//go:build unix

package tuning_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
)

func init() { children["full"] = full }

// full sends more than the process may write, and then a file that fits.
func full(dir string) {
	h := open(&adult{}, dir, &trainer{}, func(o *tuning.Options) { o.MaxFile = 1 << 30 })
	limit := syscall.Rlimit{Cur: 1 << 18, Max: 1 << 18}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		panic(err)
	}
	u, err := h.Upload()
	if err != nil {
		panic(err)
	}
	for err == nil {
		_, err = u.Write(make([]byte, 1<<12))
	}
	fmt.Println(errors.Is(err, tuning.ErrNoSpace), err)
	_, err = u.Commit(tuning.File{Name: "large", Purpose: tuning.FineTune})
	fmt.Println(errors.Is(err, tuning.ErrNoSpace))
	fmt.Println(len(h.upload(four)), len(h.Files(keys.Client{})))
}

// Where the disk is full the error says so, nothing is left, and what fits is taken.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+dir, roleEnv+"=full")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "true the disk of the server is full: nothing was kept\ntrue\n29 1\n", string(out))
	entries, err := os.ReadDir(filepath.Join(dir, "files"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
