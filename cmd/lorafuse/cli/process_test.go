//go:build unix

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// program is a command line in a process of its own; the binary of the tests
// is the program where it is called lorafuse, see TestMain.
func program(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	self, err := os.Executable()
	require.NoError(t, err)
	var errs bytes.Buffer
	c := &exec.Cmd{Path: self, Args: append([]string{"lorafuse"}, args...), Stderr: &errs, Env: os.Environ()}
	return c, &errs
}

// TestInterrupt stops a run by each signal: it saves a checkpoint and says how
// to go on, and the command that it prints ends in the adapter of a run that
// was never stopped.
func TestInterrupt(t *testing.T) {
	l := newLab(t)
	const more = "save_steps: 0\n"
	file := l.settings(llama, more)
	sets := []string{"--set", "steps=600", "--set", "adapter.lora_dropout=0.1"}
	succeed(t, append([]string{"train", file, "--set", "output_dir=" + l.path("unbroken")}, sets...)...)
	args := append([]string{"train", file}, sets...)
	for i, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		c, errs := program(t, args...)
		had := stepsOf(l.path("output/metrics.jsonl"))
		require.NoError(t, c.Start())
		awaitSteps(t, l.path("output/metrics.jsonl"), had+100)
		require.NoError(t, c.Process.Signal(signal))
		err := c.Wait()
		require.Equal(t, ExitInterrupted, c.ProcessState.ExitCode(), "%v %s", err, errs)
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		last := lines[len(lines)-1]
		assert.Regexp(t, `^lorafuse: train: interrupted after step \d+ of 600; go on with --resume: lorafuse train `, last)
		_, again, _ := strings.Cut(last, "--resume: lorafuse ")
		if i == 0 {
			args = append(args, "--resume")
		}
		assert.Equal(t, strings.Join(args, " "), again)
	}
	assert.NoDirExists(t, l.path("output/adapter"))
	succeed(t, args...)
	assert.Equal(t, readText(t, l.path("unbroken/adapter/adapter_model.safetensors")), readText(t, l.path("output/adapter/adapter_model.safetensors")))
}

// awaitSteps waits until a run has recorded so many steps.
func awaitSteps(t *testing.T, metrics string, steps int) {
	require.Eventually(t, func() bool { return stepsOf(metrics) >= steps }, time.Minute, time.Millisecond)
}

// stepsOf is how many steps a run has recorded.
func stepsOf(metrics string) int {
	raw, _ := os.ReadFile(metrics) // none before there is a file
	return bytes.Count(raw, []byte("\n"))
}

// TestInterruptElsewhere: the other commands stop too, and say no more than
// that: one that writes, and one that waits for input.
func TestInterruptElsewhere(t *testing.T) {
	l := newLab(t)
	m := l.model()
	l.setJSON(m+"/config.json", map[string]any{"max_position_embeddings": 1 << 20})
	for _, args := range [][]string{
		{"generate", "--model", m, "--prompt", "x", "-n", "1000000"},
		{"tokenize", "--model", m},
	} {
		c, errs := program(t, args...)
		in, err := c.StdinPipe()
		require.NoError(t, err)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		hang := time.AfterFunc(time.Minute, func() { c.Process.Kill() })
		defer hang.Stop()
		_, err = in.Write([]byte("hello\n"))
		require.NoError(t, err)
		_, err = out.Read(make([]byte, 1)) // it has begun, and answered the line before waiting for another
		require.NoError(t, err)
		require.NoError(t, c.Process.Signal(os.Interrupt))
		_, err = io.Copy(io.Discard, out)
		require.NoError(t, err)
		c.Wait()
		assert.Equal(t, ExitInterrupted, c.ProcessState.ExitCode(), args)
		assert.Equal(t, "lorafuse: interrupted\n", errs.String())
	}
}

// gigabytes makes two equal files of one tensor, which take no room on the disk.
func (l *lab) gigabytes(names ...string) {
	const size = 1 << 30
	header := fmt.Sprintf(`{"x":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}`, size/4, size)
	for _, name := range names {
		path := l.file(name, string([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0})+header)
		if err := os.Truncate(path, size+int64(8+len(header))); err != nil {
			l.t.Skip(err) // a file system without such files
		}
	}
}

// TestInterruptConvert: a conversion stops at once, and leaves nothing of what
// it was writing.
func TestInterruptConvert(t *testing.T) {
	for _, output := range []string{"y.safetensors", "y"} {
		l := newLab(t)
		l.gigabytes("x.safetensors")
		c, errs := program(t, "convert", "x.safetensors", output, "--dtype", "bf16")
		c.Dir = l.dir
		require.NoError(t, c.Start())
		require.Eventually(t, func() bool {
			started, err := filepath.Glob(l.dir + "/.tmp-*")
			return err == nil && len(started) > 0
		}, time.Minute, time.Millisecond)
		require.NoError(t, c.Process.Signal(os.Interrupt))
		c.Wait()
		require.Equal(t, ExitInterrupted, c.ProcessState.ExitCode(), errs)
		assert.True(t, strings.HasSuffix(errs.String(), "lorafuse: interrupted\n"), errs)
		entries, err := os.ReadDir(l.dir)
		require.NoError(t, err)
		assert.Len(t, entries, 1, "nothing but the input")
	}
}

// TestInterruptReading: so do the commands that read everything.
func TestInterruptReading(t *testing.T) {
	l := newLab(t)
	l.gigabytes("x.safetensors", "twin.safetensors")
	x := l.path("x.safetensors")
	for _, args := range [][]string{{"inspect", x, "--stats"}, {"inspect", x, "--verify"}, {"diff", x, l.path("twin.safetensors")}} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		var errs strings.Builder
		began := time.Now()
		assert.Equal(t, ExitInterrupted, Run(ctx, args, strings.NewReader(""), io.Discard, &errs), args)
		assert.Equal(t, "lorafuse: interrupted\n", errs.String())
		assert.Less(t, time.Since(began), time.Minute)
	}
}

// TestSecondSignal ends a program that cannot listen to the first: it opens a
// pipe that nobody writes to.
func TestSecondSignal(t *testing.T) {
	l := newLab(t)
	require.NoError(t, syscall.Mkfifo(l.path("template"), 0o600))
	c, _ := program(t, "generate", "--model", llama, "--prompt", "x", "--chat-template", l.path("template"))
	require.NoError(t, c.Start())
	done := make(chan struct{})
	go func() { c.Wait(); close(done) }()
	for range 1200 { // a minute
		c.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
			status, ok := c.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, ok)
			assert.Equal(t, syscall.SIGTERM, status.Signal())
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatal("it goes on and on")
}

// TestDiskFull: a write that fails half way ends the run with one line, and
// leaves nothing half-written.
func TestDiskFull(t *testing.T) {
	for _, args := range [][]string{
		{"merge", "--model", llama, "--adapter", llamaLoRA, "--output", "merged"},
		{"convert", llama, "converted", "--dtype", "bf16"},
		{"convert", llama, "converted.safetensors"},
		{"train", "train.yaml"},
		{"train", "train.yaml", "--set", "save_steps=1", "--set", "log.tensorboard=false"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			l := newLab(t)
			l.settings(llama, "")
			for i, a := range args {
				if a == "merged" || a == "train.yaml" || strings.HasPrefix(a, "converted") {
					args[i] = l.path(a)
				}
			}
			c, errs := program(t, args...)
			self := c.Path
			// Blocks of 512 bytes: enough for the configurations, not for weights.
			c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -f 4; me=$0; exec -a lorafuse "$me" "$@"`, self}, args...)
			if bash, err := exec.LookPath("bash"); err == nil {
				c.Path = bash
			}
			c.Run()
			require.Equal(t, ExitFailure, c.ProcessState.ExitCode(), errs)
			lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
			last := lines[len(lines)-1]
			assert.Regexp(t, `^lorafuse: .*: file too large$`, last)
			t.Log(last)
			for path := range l.tree() {
				path = strings.TrimPrefix(path, l.dir)
				assert.NotContains(t, path, ".tmp-")
				assert.NotContains(t, path, "merged")
				assert.NotContains(t, path, "converted")
				assert.NotContains(t, path, "adapter_model")
				assert.NotContains(t, path, "checkpoint")
			}
		})
	}
}

// TestClosedOutput: whose reader is gone ends without a word, and not as if all of
// it had been read: by the signal of the system, or by its number as a status.
func TestClosedOutput(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	defer w.Close()
	for _, args := range [][]string{{"config"}, {"version", "--json"}, {"--help"}, {"inspect", llama}} {
		var errs strings.Builder
		assert.Equal(t, ExitGone, Run(t.Context(), args, strings.NewReader(""), w, &errs), args)
		assert.Empty(t, errs.String(), args)
		c, said := program(t, args...)
		c.Stdout = w
		require.Error(t, c.Run(), args)
		assert.Equal(t, syscall.SIGPIPE, c.ProcessState.Sys().(syscall.WaitStatus).Signal(), args)
		assert.Empty(t, said.String(), args)
	}
	gone, to := io.Pipe()
	require.NoError(t, gone.Close())
	assert.Equal(t, ExitGone, Run(t.Context(), []string{"config"}, strings.NewReader(""), to, io.Discard))
}
