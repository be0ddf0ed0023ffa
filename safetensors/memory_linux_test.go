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

const savedTensors = 768

func init() {
	entries := func(size int, of func(i int) Entry) []Entry {
		var all []Entry
		for i := range savedTensors {
			e := of(i)
			e.Name, e.DType, e.Shape = fmt.Sprint("tensor ", i), U8, []int{size}
			all = append(all, e)
		}
		return all
	}
	// save prints what the two ways of saving have taken on top of what was there.
	save := func(dir string, all []Entry, bytes int64) {
		// The program itself is in memory once it has run.
		check(WriteSharded(filepath.Join(dir, "before"), everySize(1), 1<<16, nil))
		runtime.GC()
		before := memory("VmRSS")
		check(WriteFile(filepath.Join(dir, "x"), all, nil))
		fmt.Println(memory("VmHWM") - before)
		check(WriteSharded(dir, all, bytes/3, nil))
		fmt.Println(memory("VmHWM") - before)
	}
	roles["save memory"] = func(dir string, bytes int64) {
		data := make([]byte, bytes)
		for i := 0; i < len(data); i += 4096 {
			data[i] = 1
		}
		size := int(bytes / savedTensors)
		save(dir, entries(size, func(i int) Entry { return Entry{Data: data[i*size : (i+1)*size]} }), bytes)
	}
	roles["save a mapping"] = func(dir string, bytes int64) {
		f, err := Open(filepath.Join(dir, "source"))
		check(err)
		save(dir, entries(int(bytes/savedTensors), func(i int) Entry {
			v, err := f.Lookup(fmt.Sprint("tensor ", i))
			check(err)
			return v.Entry()
		}), bytes)
	}
	roles["save what is computed"] = func(dir string, bytes int64) {
		piece := make([]byte, 100_000)
		size := int(bytes / savedTensors)
		save(dir, entries(size, func(int) Entry {
			return Entry{Write: func(w io.Writer) error {
				for left := size; left > 0; {
					written, err := w.Write(piece[:min(left, len(piece))])
					if err != nil {
						return err
					}
					left -= written
				}
				return nil
			}}
		}), bytes)
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

// A save takes a buffer on top of what is in memory before, less than 2 % of
// large data; a mapped source is in memory once, as it must be, and never in a
// copy.
func TestMemoryOfASave(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector has its own memory")
	}
	// Most of it is the runtime's: stacks, the heap until it is collected, its code.
	bytes, most := int64(48<<20), 6<<20
	if os.Getenv("LORAFUSE_LONG") != "" {
		bytes = 384 << 20
		most = int(bytes / 50)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		role string
		most int
	}{{"save memory", most}, {"save what is computed", most}, {"save a mapping", int(bytes) + most}} {
		if c.role == "save a mapping" {
			require.NoError(t, os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, "source")))
		}
		out, err := inRole(c.role, dir, bytes).Output()
		require.NoError(t, err, string(out))
		lines := strings.Fields(string(out))
		require.Len(t, lines, 2)
		for i, what := range []string{"WriteFile", "WriteSharded"} {
			got, err := strconv.Atoi(lines[i])
			require.NoError(t, err)
			assert.Less(t, got, c.most, "%s, %s", c.role, what)
			t.Logf("%s, %s: %.2f MiB for %d", c.role, what, float64(got)/(1<<20), bytes>>20)
		}
	}
}
