// Package peer runs other programs for comparison. A peer is a process that is started once, answers line by line, and
// idles while others are measured.
package peer

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // the peers' own part
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/lorafuse/lorafuse/dev/bench"
)

//go:embed torch_peer.py
var torch string

//go:embed llama_peer.py
var llama string

// Peer is a program that speaks the protocol: for each line of JSON that it
// reads it writes one. It is started when it is first asked for something.
type Peer struct {
	command []string

	mu     sync.Mutex
	failed error // the error after which the peer is unusable
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	said   tail // on its standard error
	last   int  // number of the last task
}

// New returns a peer that is started with command.
func New(command ...string) *Peer { return &Peer{command: command} }

// Torch returns a peer that runs PyTorch and NumPy in the given Python. If threads is 0, they choose the number of
// threads.
func Torch(python string, threads int) *Peer {
	return New(python, "-c", torch, strconv.Itoa(threads))
}

// Llama returns a peer that runs llama.cpp in a Python with llama-cpp-python. If threads is 0, it uses one per core.
func Llama(python string, threads int) *Peer {
	return New(python, "-c", llama, strconv.Itoa(threads))
}

type request struct {
	Do   string `json:"do"`
	ID   int    `json:"id"`
	What any    `json:"what,omitempty"`
}

type answer struct {
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error"`
}

// Begin prepares the peer for a task. Errors of the peer include its last output.
func (p *Peer) Begin(ctx context.Context, what any) (bench.Sampler, error) {
	p.mu.Lock()
	p.last++
	id := p.last
	p.mu.Unlock()
	if _, err := p.ask(ctx, request{"begin", id, what}); err != nil {
		return nil, err
	}
	return &sampler{p, id}, nil
}

type sampler struct {
	p  *Peer
	id int
}

func (s *sampler) Sample(ctx context.Context) (float64, error) {
	a, err := s.p.ask(ctx, request{Do: "sample", ID: s.id})
	return a.Seconds, err
}

// Close ends the task. A peer that is gone has ended it.
func (s *sampler) Close() error {
	s.p.ask(context.Background(), request{Do: "end", ID: s.id})
	return nil
}

// ask sends a line and waits for the answer, or for the end of ctx, which ends
// the peer too.
func (p *Peer) ask(ctx context.Context, r request) (a answer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return a, p.failed
	}
	name := filepath.Base(p.command[0])
	if err := p.start(); err != nil {
		p.failed = fmt.Errorf("peer: %w", err)
		return a, p.failed
	}
	stop := context.AfterFunc(ctx, func() { p.cmd.Process.Kill() })
	defer stop()
	line, err := json.Marshal(r)
	if err != nil {
		return a, fmt.Errorf("peer: %w", err)
	}
	if _, err = p.in.Write(append(line, '\n')); err == nil {
		line, err = p.out.ReadBytes('\n')
	}
	if err != nil {
		p.end()
		p.failed = fmt.Errorf("peer: %s has ended%s", name, p.said.lastLine())
		return a, p.failed
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, fmt.Errorf("peer: %s: %w", name, err)
	}
	switch {
	case strings.HasPrefix(a.Error, "OutOfMemoryError:"):
		return a, fmt.Errorf("peer: %s: %w: %s", name, bench.ErrMemory, a.Error)
	case a.Error != "":
		return a, fmt.Errorf("peer: %s: %s", name, a.Error)
	}
	return a, nil
}

func (p *Peer) start() (err error) {
	if p.cmd != nil {
		return nil
	}
	c := exec.Command(p.command[0], p.command[1:]...)
	c.Stderr = &p.said
	if p.in, err = c.StdinPipe(); err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	p.out = bufio.NewReader(out)
	if err := c.Start(); err != nil {
		return err
	}
	p.cmd = c
	return nil
}

// end closes the input of the process and waits for it.
func (p *Peer) end() error {
	return errors.Join(p.in.Close(), p.cmd.Wait())
}

// Close ends the process.
func (p *Peer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.failed != nil {
		return nil
	}
	p.failed = errors.New("peer: closed")
	if err := p.end(); err != nil {
		return fmt.Errorf("peer: %w%s", err, p.said.lastLine())
	}
	return nil
}

// tail keeps the last bytes written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(b), nil
}

// lastLine returns the last line that was written, after a colon.
func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := bytes.TrimSpace(t.text)
	if len(text) == 0 {
		return ""
	}
	return ": " + string(text[strings.LastIndexByte(string(text), '\n')+1:])
}
