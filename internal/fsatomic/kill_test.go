//go:build unix

package fsatomic_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// TestMain lets the test binary play the process that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("FSATOMIC_WRITER"); dir != "" {
		writer(dir)
	}
	if path := os.Getenv("FSATOMIC_HOLDER"); path != "" {
		holder(path)
	}
	if path := os.Getenv("FSATOMIC_FULL"); path != "" {
		full(path)
	}
	os.Exit(m.Run())
}

const parts = 8

// writer replaces a folder and a file for ever. All parts of one generation
// say the same number.
func writer(dir string) {
	for g := 1; ; g++ {
		text := bytes.Repeat([]byte(strconv.Itoa(g)+"\n"), 2000)
		err := fsatomic.ReplaceDir(filepath.Join(dir, "folder"), func(temp string) error {
			for i := range parts {
				if err := os.WriteFile(filepath.Join(temp, strconv.Itoa(i)), text, 0o666); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			err = fsatomic.WriteFile(filepath.Join(dir, "file"), text)
		}
		if err == nil {
			err = fsatomic.ReplaceFile(filepath.Join(dir, "checked"), func(name string) error { return os.WriteFile(name, text, 0o666) })
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func TestKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	generation := func(path string) string {
		text := read(t, path)
		first, _, _ := strings.Cut(text, "\n")
		assert.Equal(t, strings.Repeat(first+"\n", 2000), text, path)
		return first
	}
	wrote := false
	for kill := range 15 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "FSATOMIC_WRITER="+dir)
		var out bytes.Buffer
		cmd.Stderr = &out
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(20+7*kill) * time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
		cmd.Wait()
		require.Empty(t, out.String())

		require.NoError(t, fsatomic.Sweep(dir))
		for _, n := range names(t, dir) {
			assert.Contains(t, []string{"folder", "file", "checked"}, n)
		}
		if folder := filepath.Join(dir, "folder"); exists(folder) {
			wrote = true
			g := generation(filepath.Join(folder, "0"))
			assert.Len(t, names(t, folder), parts)
			for i := range parts {
				assert.Equal(t, g, generation(filepath.Join(folder, strconv.Itoa(i))), "one generation")
			}
		}
		for _, name := range []string{"file", "checked"} {
			if file := filepath.Join(dir, name); exists(file) {
				generation(file)
			}
		}
	}
	assert.True(t, wrote, "the writer never got to write")
}

// full writes more than the process may.
func full(path string) {
	limit := syscall.Rlimit{Cur: 1 << 16, Max: 1 << 16}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	fmt.Print(fsatomic.WriteFile(path, make([]byte, 1<<20)))
	os.Exit(0)
}

func TestRunningOutOfSpace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	require.NoError(t, fsatomic.WriteFile(path, []byte("old")))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FSATOMIC_FULL="+path)
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, "write "+path+": file too large", string(out))
	assert.Equal(t, "old", read(t, path))
	assert.Equal(t, []string{"a"}, names(t, dir))
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "a.lock")
	held, err := fsatomic.Lock(t.Context(), path)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = fsatomic.Lock(ctx, path)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, path)

	got := make(chan error)
	go func() {
		second, err := fsatomic.Lock(t.Context(), path)
		if err == nil {
			err = second.Unlock()
		}
		got <- err
	}()
	time.Sleep(10 * time.Millisecond)
	select {
	case <-got:
		t.Fatal("two owners")
	default:
	}
	require.NoError(t, held.Unlock())
	require.NoError(t, <-got)
	require.NoError(t, os.Remove(path))
	again, err := fsatomic.Lock(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, again.Unlock())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
