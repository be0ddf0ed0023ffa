package safetensors

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	roles["load"] = func(dir string, strategy int64) {
		f, err := Open(filepath.Join(dir, "x"))
		check(err)
		views, err := f.Views()
		check(err)
		before := memory("VmHWM")
		b, stats, err := LoadHost(context.Background(), views, LoadOptions{Strategy: Strategy(strategy)})
		check(err)
		fmt.Println(memory("VmHWM")-before, &stats)
		for i, v := range b.Views() { // all of it must be there
			check(v.WithBytes(func(data []byte) error {
				if data[0] != byte(i) || data[len(data)-1] != byte(i) {
					return fmt.Errorf("tensor %d begins with %d and ends with %d", i, data[0], data[len(data)-1])
				}
				return nil
			}))
		}
	}
}

// A private copy takes the memory of its tensors, and beside it what readers
// hold at a time, which is 4 MiB each at most and does not grow with the model.
func TestMemoryOfALoad(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector has its own memory")
	}
	tensors := 8
	if os.Getenv("LORAFUSE_LONG") != "" {
		tensors = 64 // 1 GiB, of which 2 % are 20 MiB
	}
	var entries []Entry
	for i := range tensors {
		entries = append(entries, Entry{Name: fmt.Sprintf("%02d", i), DType: U8, Shape: []int{16 << 20}, Data: bytes.Repeat([]byte{byte(i)}, 16<<20)})
	}
	dir := t.TempDir()
	require.NoError(t, WriteFile(filepath.Join(dir, "x"), entries, nil))
	data := tensors * 16 << 20
	for s := Auto; s <= Direct; s++ {
		out, err := inRole("load", dir, int64(s)).Output()
		require.NoError(t, err, string(out))
		first, rest, _ := strings.Cut(string(out), " ")
		peak, err := strconv.Atoi(first)
		require.NoError(t, err, string(out))
		t.Logf("%v: %.4f of the data: %s", s, float64(peak)/float64(data), rest)
		assert.Less(t, peak, data+20<<20, s)
	}
}
