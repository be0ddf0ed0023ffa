package cache

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// counting opens a cache that counts what it reads, at a time when the sources
// have been left alone for an hour.
func (w *world) counting(reads *int) *Cache {
	c := w.open(recipes())
	c.sources.now = func() time.Time { return time.Now().Add(time.Hour) }
	c.sources.read = func(path string) ([]byte, error) {
		*reads++
		return os.ReadFile(path)
	}
	return c
}

func remembers() bool { return runtime.GOOS == "linux" || runtime.GOOS == "darwin" }

// rewrite writes a file until its time of change differs, which has the grain
// of some clock.
func (w *world) rewrite(name, content string) {
	changed := func() int64 {
		info, err := os.Stat(filepath.Join(w.dir, name))
		require.NoError(w.t, err)
		when, _, _ := changeTime(info)
		return when
	}
	for before := changed(); changed() == before; time.Sleep(time.Millisecond) {
		w.write(name, content)
	}
}

// A second run reads no source, a third one only changed ones.
func TestReadsAsLittleAsNeeded(t *testing.T) {
	if !remembers() {
		t.Skip("no time of change here")
	}
	w := newWorld(t, 3)
	run := func() (reads int) {
		c := w.counting(&reads)
		w.build(c, BuildOptions{})
		_, err := w.all(c, false)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		return reads
	}
	require.Equal(t, 9, run(), "three captions, three images, three control images")
	require.Equal(t, 0, run())
	w.rewrite("data/a.txt", "Caption a") // as long as the old one
	w.rewrite("data/b.png", "image b")   // the old content
	require.Equal(t, 3, run(), "a.txt to see that it has changed and to encode it, b.png to see that it has not")
	require.Equal(t, 0, run())

	// Without the file the digests are computed again, and a broken one is none.
	memory := filepath.Join(w.cacheDir(), sourcesFile)
	require.NoError(t, os.WriteFile(memory, []byte(`{"x": 1`), 0o666))
	require.Equal(t, 9, run())
	require.NoError(t, os.Remove(memory))
	require.Equal(t, 9, run())
	require.Equal(t, 0, run())
	w.taken()
}

// A change that preserves size and modification time is noticed.
func TestTimesSetBack(t *testing.T) {
	if !remembers() {
		t.Skip("no time of change here")
	}
	w := newWorld(t, 1)
	var reads int
	c := w.counting(&reads)
	w.build(c, BuildOptions{})
	require.NoError(t, c.Close())
	w.taken()
	info, err := os.Stat(w.samples[0].Image)
	require.NoError(t, err)
	w.rewrite("data/a.png", "IMAGE A")
	require.NoError(t, os.Chtimes(w.samples[0].Image, info.ModTime(), info.ModTime()))
	after, err := os.Stat(w.samples[0].Image)
	require.NoError(t, err)
	require.Equal(t, info.ModTime(), after.ModTime())
	require.Equal(t, info.Size(), after.Size())
	w.build(w.counting(&reads), BuildOptions{})
	require.Equal(t, []string{"IMAGE A"}, w.taken())
}

// A file written a moment ago may change again without a trace, so its digest is not kept.
func TestFreshFilesAreNotRemembered(t *testing.T) {
	w := newWorld(t, 1)
	c := w.open(recipes())
	w.build(c, BuildOptions{})
	require.NoError(t, c.Close())
	require.NoFileExists(t, filepath.Join(w.cacheDir(), sourcesFile))
	require.Empty(t, c.sources.known)
}

// A source that is being written is an error instead of a key.
func TestChangingSource(t *testing.T) {
	w := newWorld(t, 1)
	c := w.open(recipes())
	n := 0
	c.sources.read = func(path string) ([]byte, error) {
		raw, err := os.ReadFile(path)
		n++
		w.write("data/a.txt", fmt.Sprintf("longer and longer %0*d", n, n))
		return raw, err
	}
	_, err := c.Text(t.Context(), w.samples[0].Caption, w.text)
	require.ErrorIs(t, err, ErrChanging)
	require.ErrorContains(t, err, "a.txt")
	require.Empty(t, w.taken())

	// A source that becomes stable in time is used in its final state.
	n = 0
	c.sources.read = func(path string) ([]byte, error) {
		raw, err := os.ReadFile(path)
		if n++; n < 2 {
			w.write("data/a.txt", "settled")
		}
		return raw, err
	}
	got, err := c.Text(t.Context(), w.samples[0].Caption, w.text)
	require.NoError(t, err)
	require.Equal(t, embed("settled"), got)
}

// Two processes that close one after another keep the digests of both.
func TestMemoryIsMerged(t *testing.T) {
	if !remembers() {
		t.Skip("no time of change here")
	}
	w := newWorld(t, 2)
	var reads int
	one, two := w.counting(&reads), w.counting(&reads)
	_, err := one.Text(t.Context(), w.samples[0].Caption, w.text)
	require.NoError(t, err)
	_, err = two.Text(t.Context(), w.samples[1].Caption, w.text)
	require.NoError(t, err)
	require.NoError(t, one.Close())
	require.NoError(t, two.Close())
	require.NoError(t, two.Close(), "nothing new to save")
	require.Len(t, w.open(recipes()).sources.known, 2)

	// Pruning forgets what is gone.
	require.NoError(t, os.Remove(w.samples[1].Caption))
	_, err = w.open(recipes()).Prune(w.samples[:1])
	require.NoError(t, err)
	require.Len(t, w.open(recipes()).sources.known, 1)
}
