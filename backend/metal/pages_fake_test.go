//go:build cgo && metal && metalfake

package metal_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/metal"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
)

// TestWindows: a file that is longer than a buffer may be is several, which overlap so
// that each tensor lies whole in one.
func TestWindows(t *testing.T) {
	with(t, "LFSIM_METAL_MAX_BUFFER=64K")
	var pieces []piece
	for i := range 40 {
		pieces = append(pieces, piece{fmt.Sprint("t", i), 4 * (100 + 397*(i%11)), "F32"})
	}
	pieces = append(pieces, piece{"large", 4 * 11000, "F32"}, piece{"last", 4 * 3, "F32"})
	f, data := mapped(t, 12, pieces)
	dev := opened(t, backend.Options{})
	all := imported(t, dev, f, pieces)
	at := 0
	for i, p := range pieces {
		require.True(t, metal.InPlace(all[i]), p.name)
		requireSame(t, twiceOf(data[at:at+p.bytes]), doubled(t, dev, all[i], p.bytes/4))
		at += p.bytes
	}
	require.Greater(t, dev.Windows(), 5)
	require.LessOrEqual(t, dev.Windows(), at/(32<<10)+2)
	_, borrowed := metal.FakeMemory()
	require.LessOrEqual(t, int(borrowed), 2*at+64<<10, "the windows overlap by half")
	for i, b := range all {
		b.Free()
		if i == len(all)/2 {
			require.Positive(t, dev.Windows())
		}
	}
	require.Zero(t, dev.Windows())
	_, borrowed = metal.FakeMemory()
	require.Zero(t, borrowed)

	// What no buffer can hold is said.
	f, _ = mapped(t, 0, []piece{{"huge", 80 << 10, "F32"}})
	v, err := f.Lookup("huge")
	require.NoError(t, err)
	_, err = dev.Import(weights.Data{Bytes: v.Bytes(), Keep: v})
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	require.ErrorContains(t, err, "a buffer has at most 64.0 KiB")
}

// TestNoPages: where the device takes no pages weights are copied, and it says so.
func TestNoPages(t *testing.T) {
	for _, how := range []string{"0", "empty"} {
		t.Run(how, func(t *testing.T) {
			with(t, "LFSIM_METAL_NO_COPY="+how)
			pieces := []piece{{"a", 4 * 1024, "F32"}, {"b", 4 * 2048, "F32"}}
			f, data := mapped(t, 0, pieces)
			dev := opened(t, backend.Options{})
			all := imported(t, dev, f, pieces)
			require.False(t, metal.InPlace(all[1]))
			requireSame(t, twiceOf(data[4*1024:]), doubled(t, dev, all[1], 2048))
			require.Contains(t, dev.Info().Detail, "; 12.0 KiB of weights copied: the device does not take the pages of files")
			for _, b := range all {
				b.Free()
			}
		})
	}
}

// TestLargePages: pages of 16 KiB, as Apple's.
func TestLargePages(t *testing.T) {
	with(t, "LFSIM_METAL_PAGE=16K")
	metal.SetPageSize(t, 16<<10)
	dev := opened(t, backend.Options{})
	// A file of a huge page or more is mapped at the multiple of one.
	pieces := []piece{{"a", 3 << 20, "F32"}, {"b", 4 * 1001, "F32"}}
	f, data := mapped(t, 0, pieces)
	all := imported(t, dev, f, pieces)
	require.True(t, metal.InPlace(all[1]))
	require.Equal(t, 1, dev.Windows())
	requireSame(t, twiceOf(data[3<<20:]), doubled(t, dev, all[1], 1001))
	for _, b := range all {
		b.Free()
	}
}

// TestSharedPages: processes that import one file have one copy of it.
func TestSharedPages(t *testing.T) {
	const envFile, processes, size = "LORAFUSE_METAL_SHARED", 3, 24 << 20
	if path := os.Getenv(envFile); path != "" {
		f, err := safetensors.Open(path)
		require.NoError(t, err)
		dev := opened(t, backend.Options{})
		v, err := f.Lookup("a")
		require.NoError(t, err)
		b, err := dev.Import(weights.Data{Bytes: v.Bytes(), Keep: v})
		require.NoError(t, err)
		defer b.Free()
		require.NoError(t, dev.Read([]backend.Buffer{b}))
		fmt.Println("read")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until all have
		fmt.Println("pages", strings.Join(strings.Fields(fmt.Sprint(pagesOf(t, path))), " "))
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return
	}
	need(t)
	f, _ := mapped(t, 0, []piece{{"a", size, "F32"}})
	path, err := filepath.EvalSymlinks(f.Path())
	require.NoError(t, err)
	require.NoError(t, f.Close())
	type process struct {
		cmd *exec.Cmd
		in  interface{ Write([]byte) (int, error) }
		out *bufio.Scanner
	}
	var all []process
	next := func(p process, word string) string {
		for p.out.Scan() {
			if rest, ok := strings.CutPrefix(p.out.Text(), word); ok {
				return rest
			}
		}
		t.Fatalf("a process ended before it said %q", word)
		return ""
	}
	for range processes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSharedPages$", "-test.v")
		cmd.Env = append(os.Environ(), envFile+"="+path)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		all = append(all, process{cmd, in, bufio.NewScanner(out)})
	}
	for _, p := range all {
		next(p, "read")
	}
	for _, p := range all {
		_, err := p.in.Write([]byte("\n"))
		require.NoError(t, err)
	}
	for _, p := range all {
		var clean, private int
		_, err := fmt.Sscanf(next(p, "pages"), " map[Private:%d Shared:%d]", &private, &clean)
		require.NoError(t, err)
		require.GreaterOrEqual(t, clean, size, "all of the file's pages are those of others too")
		require.Less(t, private, size/100)
	}
	for _, p := range all {
		_, err := p.in.Write([]byte("\n"))
		require.NoError(t, err)
		for p.out.Scan() {
		}
		require.NoError(t, p.cmd.Wait())
	}
}

// pagesOf is what this process has of a mapped file, in bytes: pages that others have
// too, and pages of its own.
func pagesOf(t *testing.T, path string) map[string]int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	sums, mine := map[string]int{}, false
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if !strings.HasSuffix(words[0], ":") {
			mine = words[len(words)-1] == path
			continue
		}
		if !mine || len(words) < 2 {
			continue
		}
		n, _ := strconv.Atoi(words[1])
		switch words[0] {
		case "Shared_Clean:", "Shared_Dirty:":
			sums["Shared"] += n << 10
		case "Private_Clean:", "Private_Dirty:":
			sums["Private"] += n << 10
		}
	}
	return sums
}
