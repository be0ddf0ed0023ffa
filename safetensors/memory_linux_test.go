package safetensors

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a save takes in memory, in kB of /proc: data in memory, in a mapped file,
// or computed on the way.
const savedBytes = 192 << 20

func init() {
	entries := func(n int, of func(i int) Entry) []Entry {
		var all []Entry
		for i := range n {
			e := of(i)
			e.Name, e.DType, e.Shape = fmt.Sprint("tensor ", i), U8, []int{savedBytes / n}
			all = append(all, e)
		}
		return all
	}
	save := func(dir string, all []Entry) {
		// The program itself is in memory once it has run.
		check(WriteSharded(filepath.Join(dir, "before"), everySize(1), 1<<16, nil))
		runtime.GC()
		before := memory("VmRSS")
		check(WriteFile(filepath.Join(dir, "x"), all, nil))
		fmt.Println(memory("VmHWM") - before)
		check(WriteSharded(dir, all, savedBytes/3, nil))
		fmt.Println(memory("VmHWM") - before)
	}
	roles["save memory"] = func(dir string, n int64) {
		data := noise(savedBytes) // all of it touched
		size := savedBytes / int(n)
		save(dir, entries(int(n), func(i int) Entry { return Entry{Data: data[i*size : (i+1)*size]} }))
	}
	roles["save a mapping"] = func(dir string, n int64) {
		f, err := Open(filepath.Join(dir, "source"))
		check(err)
		save(dir, entries(int(n), func(i int) Entry {
			v, err := f.Lookup(fmt.Sprint("tensor ", i))
			check(err)
			return v.Entry()
		}))
	}
	roles["save what is computed"] = func(dir string, n int64) {
		piece := make([]byte, 100_000)
		save(dir, entries(int(n), func(int) Entry {
			return Entry{Write: func(w io.Writer) error {
				for left := savedBytes / int(n); left > 0; {
					written, err := w.Write(piece[:min(left, len(piece))])
					if err != nil {
						return err
					}
					left -= written
				}
				return nil
			}}
		}))
	}
}

func memory(what string) int {
	text, err := os.ReadFile("/proc/self/status")
	check(err)
	_, rest, _ := strings.Cut(string(text), what+":")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	check(err)
	return n << 10
}

// A save takes less than 2 % of the data on top of what is in memory before; a
// mapped source is in memory once, as it must be, and never in a copy.
func TestMemoryOfASave(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector has its own memory")
	}
	const most = savedBytes / 50
	counts := []int64{768}
	if os.Getenv("LORAFUSE_LONG") != "" {
		counts = []int64{3, 768}
	}
	for _, n := range counts {
		dir := t.TempDir()
		for _, c := range []struct {
			role string
			most int
		}{{"save memory", most}, {"save what is computed", most}, {"save a mapping", savedBytes + most}} {
			if c.role == "save a mapping" {
				require.NoError(t, os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, "source")))
			}
			out, err := inRole(c.role, dir, n).Output()
			require.NoError(t, err, string(out))
			lines := strings.Fields(string(out))
			require.Len(t, lines, 2)
			for i, what := range []string{"WriteFile", "WriteSharded"} {
				got, err := strconv.Atoi(lines[i])
				require.NoError(t, err)
				assert.Less(t, got, c.most, "%s, %d tensors, %s", c.role, n, what)
				t.Logf("%s, %d tensors, %s: %.2f MiB for %d", c.role, n, what, float64(got)/(1<<20), savedBytes>>20)
			}
		}
	}
}
