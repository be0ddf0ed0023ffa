//go:build unix

package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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
)

// In the processes that these tests start, the test binary runs one of the
// functions here instead of the tests.
const (
	roleVariable = "SAFETENSORS_TEST_ROLE"
	dirVariable  = "SAFETENSORS_TEST_DIR"
	argVariable  = "SAFETENSORS_TEST_ARG"
	oldVariable  = "SAFETENSORS_TEST_OLD_SYSTEM" // set where there are no files without a name
)

var roles = map[string]func(dir string, arg int64){
	"replace a file":  replaceFileForEver,
	"replace a model": replaceModelForEver,
	"die while writing": func(dir string, arg int64) {
		dieAfter(arg, func(entries []Entry) error { return WriteFile(filepath.Join(dir, "x.safetensors"), entries, nil) })
	},
	"die while writing a model": func(dir string, arg int64) {
		dieAfter(arg, func(entries []Entry) error { return WriteSharded(dir, entries, 1<<16, nil) })
	},
}

// TestRole is not a test, but where the other processes begin.
func TestRole(t *testing.T) {
	role, ok := roles[os.Getenv(roleVariable)]
	if !ok {
		t.Skip("runs in processes that other tests start")
	}
	if os.Getenv(oldVariable) != "" {
		withoutNameless()
	}
	arg, _ := strconv.ParseInt(os.Getenv(argVariable), 10, 64)
	role(os.Getenv(dirVariable), arg)
	os.Exit(0)
}

func inRole(role, dir string, arg int64) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestRole$")
	cmd.Env = append(os.Environ(), roleVariable+"="+role, dirVariable+"="+dir, argVariable+"="+strconv.FormatInt(arg, 10), "GORACE=atexit_sleep_ms=0")
	return cmd
}

// withoutNameless makes this process one on a system without nameless files.
func withoutNameless() {
	nameless.create = func(string) (*os.File, error) { return nil, errors.ErrUnsupported }
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// everySize makes tensors of several sizes, of which every byte says which
// generation they are of.
func everySize(value byte) []Entry {
	var entries []Entry
	for i, n := range []int{1, 100, 5000, 70_000, 300_000, 0, 2_000_000, 90_000} {
		data := bytes.Repeat([]byte{value}, n)
		e := Entry{Name: fmt.Sprintf("tensor.%d", i), DType: U8, Shape: []int{n}, Data: data}
		if i%2 == 1 {
			e.Data, e.Write = nil, func(w io.Writer) error { _, err := w.Write(data); return err }
		}
		entries = append(entries, e)
	}
	return entries
}

func replaceFileForEver(dir string, _ int64) {
	for value := byte(1); ; value++ {
		check(WriteFile(filepath.Join(dir, "x.safetensors"), everySize(value), nil))
		fmt.Print(".")
	}
}

// replaceModelForEver goes through all transitions: fewer shards, as many, more,
// one and none.
func replaceModelForEver(dir string, _ int64) {
	sizes := []int64{200_000, 200_000, 3_000_000, 3_000_000, 400_000, 100, 100}
	for value := byte(1); ; value++ {
		check(WriteSharded(dir, everySize(value), sizes[int(value)%len(sizes)], nil))
		fmt.Print(".")
	}
}

// wholeGeneration checks that a model is all of one generation.
func wholeGeneration(t *testing.T, lookup func(string) (*View, error)) byte {
	t.Helper()
	var value byte
	for i, want := range everySize(0) {
		v, err := lookup(want.Name)
		require.NoError(t, err)
		require.Equal(t, want.Shape, v.Shape)
		data := v.Bytes()
		if i == 0 {
			value = data[0]
		}
		require.Equal(t, len(data), bytes.Count(data, []byte{value}), want.Name)
	}
	return value
}

// killAtRandom kills 50 processes, each at some moment of its work, and checks
// what they leave behind each time.
func killAtRandom(t *testing.T, role, dir string, checkDir func()) {
	const most = 15 * time.Millisecond // several writes
	written := 0
	for range 50 {
		cmd := inRole(role, dir, 0)
		var out bytes.Buffer
		pipe, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		// Not before it has begun: starting takes longer than writing.
		_, err = io.CopyN(&out, pipe, 1)
		require.NoError(t, err)
		time.Sleep(time.Duration(rand.Int64N(int64(most))))
		require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
		_, _ = io.Copy(&out, pipe)
		_ = cmd.Wait()
		require.Empty(t, strings.Trim(out.String(), "."), "the writer has failed by itself")
		written += out.Len()
		checkDir()
	}
	t.Log(written, "complete writes")
}

func TestKilledWhileReplacingAFile(t *testing.T) {
	systems := map[string]string{"nameless": ""}
	if os.Getenv("LORAFUSE_LONG") != "" {
		systems["named"] = "old"
	}
	for name, system := range systems {
		t.Run(name, func(t *testing.T) {
			t.Setenv(oldVariable, system)
			dir := t.TempDir()
			path := filepath.Join(dir, "x.safetensors")
			leftovers := 0
			killAtRandom(t, "replace a file", dir, func() {
				f, err := Open(path)
				require.NoError(t, err)
				wholeGeneration(t, f.Lookup)
				require.NoError(t, f.Close())
				files, err := os.ReadDir(dir)
				require.NoError(t, err)
				require.LessOrEqual(t, len(files), 2, "the next writer removes what a dead one has left behind")
				leftovers += len(files) - 1
			})
			t.Log(leftovers, "temporary names seen")
			if system != "" {
				assert.NotZero(t, leftovers)
			}
			require.NoError(t, WriteSharded(dir, nil, 0, nil, Stem("x")))
			assertFiles(t, dir, "x.safetensors")
		})
	}
}

func TestKilledWhileReplacingAModel(t *testing.T) {
	dir := t.TempDir()
	killAtRandom(t, "replace a model", dir, func() {
		set, err := OpenModel(dir)
		require.NoError(t, err)
		value := wholeGeneration(t, set.Lookup)
		require.NoError(t, set.Close())
		set, err = asOthersRead(dir, defaultName)
		require.NoError(t, err)
		other := wholeGeneration(t, set.Lookup)
		require.NoError(t, set.Close())
		require.LessOrEqual(t, value-other+1, byte(2), "one is the successor of the other, if it is not the same")
	})
	require.NoError(t, WriteSharded(dir, everySize(0), 100_000, nil))
	set, err := OpenModel(dir)
	require.NoError(t, err)
	assertFiles(t, dir, shardNames(len(set.Files()))...)
	require.NoError(t, set.Close())
}

// dieAfter has the process killed when so many bytes of data have been written.
func dieAfter(bytes int64, write func([]Entry) error) {
	entries := everySize(2)
	for i := range entries {
		data := entries[i].Data
		if entries[i].Write != nil {
			continue
		}
		entries[i].Data, entries[i].Write = nil, func(w io.Writer) error {
			for len(data) > 0 {
				n := min(int64(len(data)), bytes, 10_000)
				if n == 0 {
					check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
					select {}
				}
				if _, err := w.Write(data[:n]); err != nil {
					return err
				}
				data = data[n:]
				bytes -= n
			}
			return nil
		}
	}
	check(write(entries))
}

// Killed after so many bytes, the old file is there and, on most systems,
// nothing else.
func TestKilledAfterSoManyBytes(t *testing.T) {
	for role, names := range map[string][]string{"die while writing": {"x.safetensors"}, "die while writing a model": shardNames(5)} {
		dir := t.TempDir()
		if len(names) == 1 {
			require.NoError(t, WriteFile(filepath.Join(dir, names[0]), everySize(1), nil))
		} else {
			require.NoError(t, WriteSharded(dir, everySize(1), 1<<16, nil))
		}
		nameless, err := createNameless(dir)
		if err == nil {
			nameless.Close()
		}
		for i := range int64(10) {
			at := i * 220_000
			cmd := inRole(role, dir, at)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, string(out))
			require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), string(out))
			if nameless != nil {
				assertFiles(t, dir, names...)
			}
			if len(names) == 1 {
				f, err := Open(filepath.Join(dir, names[0]))
				require.NoError(t, err)
				assert.Equal(t, byte(1), wholeGeneration(t, f.Lookup), at)
				require.NoError(t, f.Close())
			} else {
				set, err := OpenModel(dir)
				require.NoError(t, err)
				assert.Equal(t, byte(1), wholeGeneration(t, set.Lookup), at)
				require.NoError(t, set.Close())
			}
		}
	}
}
