package tuning_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/tuning"
)

// childEnv makes this test binary a server that is killed: it holds the folder.
const (
	childEnv = "LORAFUSE_TEST_TUNING_DIR"
	roleEnv  = "LORAFUSE_TEST_TUNING_ROLE"
)

// children are what it can do, by roleEnv.
var children = map[string]func(dir string){"": child, "saver": saver}

// child makes a job, has it trained slowly, begins a file, and says how far it is.
func child(dir string) { slowly(dir, &trainer{gate: make(chan struct{})}) }

// saver is child, but stays where a checkpoint is on the disk that nobody knows of yet.
func saver(dir string) {
	slowly(dir, &trainer{gate: make(chan struct{}), saved: func(step int) {
		fmt.Println("saved", step)
		select {}
	}})
}

func slowly(dir string, x *trainer) {
	t := &adult{}
	h := open(t, dir, x)
	j := h.create(func(r *tuning.Request) { r.Suffix = "mine" })
	fmt.Println("job", j.ID)
	u, err := h.Upload()
	if err != nil {
		panic(err)
	}
	if _, err := u.Write(make([]byte, 4000)); err != nil {
		panic(err)
	}
	for step := range 11 {
		x.gate <- struct{}{}
		fmt.Println("step", step+1)
	}
	select {}
}

// adult stands in for a test in a process of its own.
type adult struct{ testing.TB }

func (*adult) Helper()                           {}
func (*adult) Cleanup(func())                    {}
func (*adult) Context() context.Context          { return context.Background() }
func (*adult) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*adult) FailNow()                          { os.Exit(1) }

// TestKilled: after kill -9 at any step the job goes on, nothing is there twice, and half
// a file is not there at all.
func TestKilled(t *testing.T) {
	for _, step := range []string{"job", "step 2", "saved 4", "step 5", "step 9", "step 11"} {
		dir := t.TempDir()
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), childEnv+"="+dir)
		if strings.HasPrefix(step, "saved") {
			c.Env = append(c.Env, roleEnv+"=saver")
		}
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		id := ""
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if x, ok := strings.CutPrefix(lines.Text(), "job "); ok {
				id = x
			}
			if strings.HasPrefix(lines.Text(), step) {
				break
			}
		}
		require.NoError(t, c.Process.Kill())
		c.Wait()
		require.NotEmpty(t, id)

		h := open(t, dir, &trainer{})
		files, err := os.ReadDir(filepath.Join(dir, "files"))
		require.NoError(t, err)
		if step != "job" { // where the upload had perhaps not begun
			require.Len(t, files, 1)
		}
		j := h.await(id, tuning.Succeeded)
		require.Equal(t, "mine", j.Tuned)
		text := strings.Join(h.messages(id), "\n")
		for n := 1; n <= 12; n++ {
			require.Equal(t, 1, strings.Count(text, fmt.Sprintf("Step %d/12:", n)), text)
		}
		require.Len(t, j.Checkpoints, 3, step)
		for i, c := range j.Checkpoints {
			require.Equal(t, 4*(i+1), c.Metrics.Step)
			require.NotNil(t, c.Metrics.Loss)
		}
		require.NoError(t, h.Close())
		entries, err := os.ReadDir(filepath.Join(dir, "jobs"))
		require.NoError(t, err)
		require.Empty(t, entries)
	}
}
