package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/vbauerster/mpb/v8"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that the test moves.
type clock struct{ time.Time }

func (c *clock) pass(d time.Duration) { c.Time = c.Add(d) }

func plain(w io.Writer) (*Display, *clock) {
	c := &clock{time.Unix(1e9, 0)}
	d := New(w)
	d.now = func() time.Time { return c.Time }
	return d, c
}

func TestLines(t *testing.T) {
	var out bytes.Buffer
	d, c := plain(&out)
	for step := int64(100); step <= 500; step++ { // resumed at 100
		d.Steps("train", step, 500, fmt.Sprintf("loss %.3f", 200/float64(step)))
		c.pass(500 * time.Millisecond)
	}
	d.Close()
	assert.Equal(t, []string{
		"train  100/500  20%  loss 2.000",
		"train  120/500  24%  2/s  3m10s left  loss 1.667",
		"train  140/500  28%  2/s  3m00s left  loss 1.429",
		"train  160/500  32%  2/s  2m50s left  loss 1.250",
	}, strings.Split(out.String(), "\n")[:4])
	assert.Equal(t, 21, strings.Count(out.String(), "\n"))
	assert.True(t, strings.HasSuffix(out.String(), "train  500/500  100%  2/s  loss 0.400\n"))
}

func TestBytesAndUnknownTotals(t *testing.T) {
	var out bytes.Buffer
	d, c := plain(&out)
	d.Bytes("model.safetensors", 0, 4_900_000_000)
	c.pass(20 * time.Second)
	d.Bytes("model.safetensors", 700_000_000, 4_900_000_000)
	d.Steps("rows", 0, 0, "")
	c.pass(time.Minute)
	d.Steps("rows", 6, 0, "")
	d.Bytes("stream", 999, 0)
	c.pass(time.Second)
	d.Bytes("stream", 1999, 0)
	fmt.Fprintln(d, "a word between")
	d.Close()
	d.Close()
	assert.Equal(t, `model.safetensors  0/4.9 GB  0%
model.safetensors  0.7/4.9 GB  14%  35 MB/s  2m00s left
rows  0
rows  6  10 s each
stream  999 B
a word between
stream  2.0 kB  1 kB/s
`, out.String())
}

func TestRateForgetsTheDistantPast(t *testing.T) {
	var out bytes.Buffer
	d, c := plain(&out)
	for i := range int64(100) { // slow at first, ten times as fast later
		d.Steps("x", i, 1000, "")
		if c.pass(2 * time.Second); i > 50 {
			c.pass(-1800 * time.Millisecond)
		}
	}
	for i := range int64(700) {
		d.Steps("x", 100+i, 1000, "")
		c.pass(200 * time.Millisecond)
	}
	d.Close()
	assert.True(t, strings.HasSuffix(out.String(), "799/1000  79%  5/s  40s left\n"), out.String())
}

func TestATaskMayComeAgain(t *testing.T) {
	var out bytes.Buffer
	d, _ := plain(&out)
	for range 2 {
		d.Steps("eval", 1, 2, "")
		d.Steps("eval", 2, 2, "")
	}
	d.Close()
	assert.Equal(t, strings.Repeat("eval  1/2  50%\neval  2/2  100%\n", 2), out.String())
}

// screen makes a Display believe that it writes to a terminal.
func screen(w io.Writer) *Display {
	d := New(w)
	d.bars = &bars{w: w, options: []mpb.ContainerOption{mpb.WithAutoRefresh(), mpb.WithRefreshRate(5 * time.Millisecond), mpb.WithWidth(100)}}
	return d
}

func TestBars(t *testing.T) {
	var out bytes.Buffer
	d := screen(&out)
	var wg sync.WaitGroup
	for _, name := range []string{"a.safetensors", "b.safetensors"} {
		wg.Go(func() {
			for i := range int64(20) {
				d.Bytes(name, (i+1)*50_000_000, 1_000_000_000)
				time.Sleep(time.Millisecond)
			}
		})
	}
	for i := range int64(7) {
		d.Steps("train", i, 10, fmt.Sprintf("loss %d", 9-i))
		fmt.Fprintf(d, "saved %d\n", i)
	}
	wg.Wait()
	d.Bytes("c.bin", 5000, 0)
	d.Bytes("c.bin", 6000, 6000) // the total comes late
	d.Close()                    // train stays at 6 of 10
	text := out.String()
	for _, want := range []string{"a.safetensors", "b.safetensors", "1/1 GB", "6/6 kB", "6/10", "loss 3", "━", "saved 6\n"} {
		assert.Contains(t, text, want)
	}
	fmt.Fprintln(d, "after")
	assert.True(t, strings.HasSuffix(out.String(), "after\n"))
	d.Steps("again", 1, 1, "")
	d.Close()
	assert.Contains(t, out.String(), "again")
}

func TestWords(t *testing.T) {
	for want, got := range map[string]string{
		"1s": span(0), "59s": span(59 * time.Second), "1m00s": span(60 * time.Second), "2h05m": span(125 * time.Minute),
	} {
		assert.Equal(t, want, got)
	}
	assert.Equal(t, 99., percent(999, 1000), "100% is the end")
}

func ExampleDisplay() {
	d := New(os.Stdout) // not a terminal here
	defer d.Close()

	// A library takes a callback and need not know this package.
	download := func(progress func(task string, done, total int64)) {
		progress("model.safetensors", 2_000_000, 2_000_000)
	}
	download(d.Bytes)
	// Output:
	// model.safetensors  2/2 MB  100%
}
