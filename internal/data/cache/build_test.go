package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tensor"
)

// The files are the same for any number of workers.
func TestWorkers(t *testing.T) {
	var want map[string]string
	for _, workers := range []int{0, 1, 3, 50} {
		w := newWorld(t, 6)
		c := w.open(recipes())
		var seen []Progress
		stats := w.build(c, BuildOptions{Workers: workers, Progress: func(p Progress) { seen = append(seen, p) }})
		require.Equal(t, Stats{Entries: 19, Built: 19}, stats)
		require.Len(t, seen, 19)
		entries := map[string]bool{}
		for i, p := range seen {
			assert.Equal(t, i+1, p.Done)
			assert.Equal(t, 19, p.Total)
			assert.True(t, p.Built)
			entries[p.Entry] = true
		}
		require.Len(t, entries, 19)
		got := files(t, w.cacheDir())
		if want == nil {
			want = got
		}
		require.Equal(t, want, got)
		built := false
		w.build(c, BuildOptions{Workers: workers, Progress: func(p Progress) { built = built || p.Built }})
		require.False(t, built)
	}
}

// A caption that two images share is encoded once.
func TestSharedCaption(t *testing.T) {
	w := newWorld(t, 1)
	w.samples = append(w.samples, Sample{Image: w.write("data/a.jpg", "photo a"), Caption: w.samples[0].Caption})
	require.Equal(t, Stats{Entries: 5, Built: 5}, w.build(w.open(recipes()), BuildOptions{}))
	require.Contains(t, names(files(t, w.cacheDir())), "img_embs/a.jpg.safetensors")
}

// Build returns the first error in sample order, whichever occurs first, and keeps finished entries.
func TestFirstError(t *testing.T) {
	for _, c := range []struct {
		name    string
		workers int
		order   func(c, f chan struct{}) (waitC, waitF <-chan struct{})
	}{
		{"one worker", 1, func(c, f chan struct{}) (_, _ <-chan struct{}) { return c, f }},
		{"c, then f", 4, func(c, f chan struct{}) (_, _ <-chan struct{}) { return f, after(20 * time.Millisecond) }},
		{"f, then c", 4, func(c, f chan struct{}) (_, _ <-chan struct{}) { return after(20 * time.Millisecond), f }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 8)
			begunC, begunF := make(chan struct{}), make(chan struct{})
			waitC, waitF := c.order(begunC, begunF)
			e := w.encoders()
			e.Text = func(text string) (Embedding, error) {
				switch text {
				case "caption c":
					close(begunC)
					<-waitC
				case "caption f":
					close(begunF)
					<-waitF
				default:
					return w.text(text)
				}
				return Embedding{}, errors.New("cannot encode " + text)
			}
			stats, err := w.open(recipes()).Build(t.Context(), w.samples, e, BuildOptions{Workers: c.workers})
			require.ErrorContains(t, err, "cannot encode caption c")
			require.Equal(t, len(w.taken()), stats.Built)
			require.FileExists(t, w.entry("text_embs/b.txt"))
			if c.workers == 1 { // others may have begun it before the error was known
				require.NoFileExists(t, w.entry("text_embs/h.txt"))
			}
		})
	}
}

// after returns a channel that is closed some time from now.
func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}

func TestCancelled(t *testing.T) {
	w := newWorld(t, 4)
	c := w.open(recipes())
	ctx, cancel := context.WithCancel(t.Context())
	stats, err := c.Build(ctx, w.samples, w.encoders(), BuildOptions{Progress: func(p Progress) {
		if p.Done == 3 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, stats.Built)
	require.Equal(t, Stats{Entries: 13, Built: 10}, w.build(c, BuildOptions{}), "a second run goes on")
}

// Two samples whose images have the same name cannot both be cached.
func TestBuildCollision(t *testing.T) {
	w := newWorld(t, 1)
	w.samples = append(w.samples, Sample{Image: w.write("other/a.png", "other")})
	_, err := w.open(recipes()).Build(t.Context(), w.samples, w.encoders(), BuildOptions{})
	require.ErrorIs(t, err, ErrName)
}

// Entries of a nil encoder are left alone.
func TestSomeEncoders(t *testing.T) {
	w := newWorld(t, 1)
	c := w.open(recipes())
	stats, err := c.Build(t.Context(), w.samples, Encoders{Control: func(image []byte) (tensor.Tensor, error) { return w.image(image) }}, BuildOptions{})
	require.NoError(t, err)
	require.Equal(t, Stats{Entries: 1, Built: 1}, stats)
	require.Equal(t, []string{"control a"}, w.taken())
}

// child is set for the processes of TestProcesses: the folder to build.
const child = "LORAFUSE_TEST_CACHE"

// TestProcesses: several processes build one cache at the same time, and some are killed. The remaining entries are
// complete, and equal to the ones of a single process.
func TestProcesses(t *testing.T) {
	if dir := os.Getenv(child); dir != "" {
		w := &world{t: t, dir: dir}
		for i := range 12 {
			name := filepath.Join(dir, "data", string(rune('a'+i)))
			w.samples = append(w.samples, Sample{Image: name + ".png", Caption: name + ".txt"})
		}
		w.build(w.open(recipes()), BuildOptions{Workers: 2})
		return
	}
	w := newWorld(t, 12)
	start := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestProcesses$")
		cmd.Env = append(os.Environ(), child+"="+w.dir)
		err := cmd.Start()
		if errors.Is(err, syscall.ENOEXEC) {
			t.Skip("an emulated test cannot start itself")
		}
		require.NoError(t, err)
		return cmd
	}
	for round := range 3 {
		victim := start()
		time.Sleep(time.Duration(10+7*round) * time.Millisecond)
		require.NoError(t, victim.Process.Kill())
		victim.Wait()
	}
	var all []*exec.Cmd
	for range 3 {
		all = append(all, start())
	}
	for _, cmd := range all {
		require.NoError(t, cmd.Wait())
	}
	alone := newWorld(t, 12)
	for i := range alone.samples {
		w.samples[i].Control, alone.samples[i].Control = "", ""
	}
	alone.build(alone.open(recipes()), BuildOptions{})
	got, want := files(t, w.cacheDir()), files(t, alone.cacheDir())
	for name, content := range want {
		require.Equal(t, content, got[name], name)
	}
	require.Equal(t, Stats{Entries: 25}, w.build(w.open(recipes()), BuildOptions{Verify: true}))
}

// BenchmarkSecondRun measures a run that finds everything fresh.
func BenchmarkSecondRun(b *testing.B) {
	w := &world{t: b, dir: b.TempDir()}
	for i := range 1000 {
		name := fmt.Sprintf("data/%04d", i)
		w.samples = append(w.samples, Sample{Image: w.write(name+".png", "image"+name), Caption: w.write(name+".txt", "caption"+name)})
	}
	c := w.open(recipes())
	w.build(c, BuildOptions{})
	require.NoError(b, c.Close())
	for b.Loop() {
		if stats := w.build(w.open(recipes()), BuildOptions{}); stats.Built != 0 {
			b.Fatal(stats)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/2001, "µs/entry")
}
