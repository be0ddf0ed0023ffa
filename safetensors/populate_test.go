package safetensors

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// resident is how many bytes of a file are mapped by this process and in memory.
func resident(t *testing.T, path string) int64 {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip("needs /proc/self/smaps")
	}
	_, of, ok := strings.Cut(string(maps), path)
	require.True(t, ok, "not mapped")
	kb := regexp.MustCompile(`Rss: +(\d+) kB`).FindStringSubmatch(of)
	n, err := strconv.ParseInt(kb[1], 10, 64)
	require.NoError(t, err)
	return n << 10
}

func TestPopulate(t *testing.T) {
	defer goleak.VerifyNone(t)
	v := bigFile(t, 5<<20)
	whole := roundUp(int64(len(v.file.mapping.data)), pageSize)
	assert.Zero(t, resident(t, v.file.path))
	stats, err := v.file.Populate(t.Context(), LoadOptions{Threads: 3, ChunkSize: 1 << 20, Strategy: Direct})
	require.NoError(t, err)
	assert.Equal(t, whole, resident(t, v.file.path))
	assert.Equal(t, int64(5<<20), stats.Bytes)
	assert.Equal(t, 3, stats.Threads)
	assert.Equal(t, Mmap, stats.Strategy)
	assert.Equal(t, "used in place", stats.Why)
	assert.True(t, stats.Files[0].InPlace)

	require.NoError(t, Advise([]*View{v}, AdviseDontNeed))
	assert.Zero(t, resident(t, v.file.path))
	part, err := v.Rows(1<<20, 1<<20+1)
	require.NoError(t, err)
	_, err = Populate(t.Context(), []*View{part}, LoadOptions{})
	require.NoError(t, err)
	got := resident(t, v.file.path)
	assert.Positive(t, got)
	assert.Less(t, got, whole, "not all of it")
	for a := AdviseNormal; a <= AdviseHugePages; a++ {
		require.NoError(t, Advise([]*View{v, part}, a))
	}
	require.NoError(t, v.WithBytes(func(data []byte) error { assert.True(t, bytes.Equal(noise(5<<20), data)); return nil }))
}

// TestPopulateKeepsNothing: what has been made resident goes with the file.
func TestPopulateKeepsNothing(t *testing.T) {
	v := bigFile(t, 5<<20)
	_, err := v.file.Populate(t.Context(), LoadOptions{})
	require.NoError(t, err)
	require.Positive(t, resident(t, v.file.path))
	require.NoError(t, v.file.Close())
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	assert.NotContains(t, string(maps), v.file.path)
}

func TestPopulateOfSet(t *testing.T) {
	dir := t.TempDir()
	entries := []Entry{
		{Name: "a", DType: U8, Shape: []int{50_000}, Data: noise(50_000)},
		{Name: "b", DType: U8, Shape: []int{50_000}, Data: noise(50_000)},
	}
	err := WriteSharded(dir, entries, 60_000, nil)
	require.NoError(t, err)
	set, err := OpenModel(dir)
	require.NoError(t, err)
	require.Len(t, set.Files(), 2)
	stats, err := set.Populate(t.Context(), LoadOptions{})
	require.NoError(t, err)
	assert.Equal(t, int64(100_000), stats.Bytes)
	assert.Len(t, stats.Files, 2)
	for _, f := range set.Files() {
		assert.Equal(t, roundUp(int64(len(f.mapping.data)), pageSize), resident(t, f.path))
	}
	require.NoError(t, set.Close())
	_, err = set.Populate(t.Context(), LoadOptions{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = set.Files()[0].Populate(t.Context(), LoadOptions{})
	require.ErrorIs(t, err, ErrClosed)
}

// What is not mapped needs no help.
func TestPopulateOfOthers(t *testing.T) {
	views, _ := mixed(t)
	stats, err := Populate(t.Context(), views, LoadOptions{})
	require.NoError(t, err)
	var paths []string
	for _, f := range stats.Files {
		paths = append(paths, filepath.Base(f.Path))
	}
	assert.Equal(t, []string{"0.safetensors", "1.safetensors", ".", "placed"}, paths)
	_, err = residentSink{}.Slot(t.Context(), nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NoError(t, Advise(views, AdviseRandom))
}

func TestPopulateOfShrunkFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be cut short")
	}
	v := bigFile(t, 1<<20)
	require.NoError(t, os.Truncate(v.file.path, 8192))
	_, err := v.file.Populate(t.Context(), LoadOptions{Threads: 1})
	require.ErrorIs(t, err, ErrFault)
	require.ErrorContains(t, err, v.file.path+`: tensor "w": byte 8192: `)
}

// user is a sink that uses some memory in place.
type user struct {
	*gather
	takes   bool
	failure error
	chunks  []*Chunk
	data    [][]byte
}

func (u *user) InPlace(c *Chunk, data []byte) (bool, error) {
	u.chunks, u.data = append(u.chunks, c), append(u.data, data)
	if u.takes {
		for _, p := range c.Parts {
			copy(u.got[p.View][p.From:p.From+p.Length], data[p.At:])
		}
	}
	return u.takes, u.failure
}

func TestLoadInPlace(t *testing.T) {
	views, want := mixed(t)
	for _, takes := range []bool{true, false} {
		for _, s := range []Strategy{Auto, Mmap, Pread} {
			u := &user{gather: newGather(views), takes: takes}
			stats, err := Load(t.Context(), views, u, LoadOptions{Strategy: s})
			require.NoError(t, err)
			for i := range want {
				require.True(t, bytes.Equal(want[i], u.got[i]), views[i].Name)
			}
			var inPlace int
			for _, f := range stats.Files {
				if f.InPlace {
					inPlace++
				}
			}
			if s == Pread {
				require.Empty(t, u.data)
				continue
			}
			require.Len(t, u.data, 4, "two files, the bytes, the placed tensors")
			for i, c := range u.chunks {
				require.Equal(t, c.Length, int64(len(u.data[i])))
				if c.File.info != nil {
					require.Zero(t, int64(address(u.data[i]))%pageSize)
				}
			}
			if takes {
				require.Equal(t, 4, inPlace)
				require.Equal(t, 4, u.slots, "for what is not in memory")
			} else {
				require.Zero(t, inPlace)
			}
		}
	}
	failure := errors.New("no")
	_, err := Load(t.Context(), views, &user{gather: newGather(views), failure: failure}, LoadOptions{})
	require.Equal(t, failure, err)
}

// Memory that a sink has taken outlives the file.
func TestLoadInPlaceOutlivesClose(t *testing.T) {
	v := bigFile(t, 1<<20)
	u := &user{gather: newGather([]*View{v}), takes: true}
	_, err := Load(t.Context(), []*View{v}, u, LoadOptions{})
	require.NoError(t, err)
	require.NoError(t, v.file.Close())
	runtime.GC()
	require.Equal(t, 1, mappings(t, v.file.path))
	p := u.chunks[0].Parts[0]
	require.True(t, bytes.Equal(noise(1<<20), u.data[0][p.At:p.At+p.Length]))
	runtime.KeepAlive(u.chunks[0])
}

var _ InPlaceSink = (*user)(nil)
