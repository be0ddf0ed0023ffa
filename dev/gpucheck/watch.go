package gpucheck

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// often is the interval at which the report of a running step is written.
var often = 3 * time.Second

// watch runs the program of a step and regularly saves its results in the report, so that losing the machine loses
// only a few seconds.
func (r *runner) watch(c *exec.Cmd, s *step, x *Result, stdout *output) error {
	began, ended := time.Now(), make(chan error, 1)
	go func() {
		err := c.Run()
		end(c) // its child processes
		ended <- err
	}()
	tick := time.NewTicker(often)
	defer tick.Stop()
	if s.kind == benchmark {
		stop := x.watchClock()
		defer stop()
	}
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			x.Seconds = time.Since(began).Seconds()
			switch s.kind {
			case tests, sanitizing:
				x.Tests = count(stdout.bytes())
			case benchmark:
				x.Bench = s.saved()
			}
			_ = r.report.Write(r.Out) // it is written again when the step has ended, and then must be
		}
	}
}

// saved returns the report that a step's program has saved so far, or nil.
func (s *step) saved() *Benchmark {
	raw, err := os.ReadFile(s.saves)
	if err != nil {
		return nil
	}
	b, err := readBenchmark(raw)
	if err != nil {
		return nil
	}
	return b
}

// output keeps everything written to it and can be read while it grows.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// bytes returns a copy of the content.
func (o *output) bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.b.Bytes())
}

// tail keeps the last bytes written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 6 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b = append(t.b, p...); len(t.b) > 4*tailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.b[max(0, len(t.b)-tailBytes):]), "?")
}
