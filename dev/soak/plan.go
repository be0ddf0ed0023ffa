package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// plan describes the load on a server.
type plan struct {
	url, key        string
	time, every     time.Duration
	clients, tokens int
	adapters, swap  []string
	client          *http.Client
}

// counts holds the numbers of completed actions.
type counts struct{ answers, left, swaps, unknown atomic.Int64 }

// swapped is the name that is assigned to different adapters in turn.
const swapped = "swapped"

// do sends requests for the configured time and takes snapshots of the server.
func (p *plan) do(ctx context.Context, out io.Writer) (looks []look, done *counts, err error) {
	p.url, done = strings.TrimSuffix(p.url, "/"), &counts{}
	transport := &http.Transport{MaxIdleConnsPerHost: p.clients}
	p.client = &http.Client{Transport: transport}
	defer transport.CloseIdleConnections()
	began := time.Now()
	fmt.Fprintln(out, columns)
	see := func() error {
		l, err := p.look(time.Since(began))
		if err == nil {
			looks = append(looks, l)
			fmt.Fprintln(out, l)
		}
		return err
	}
	if err := see(); err != nil {
		return nil, done, err
	}
	working, stop := context.WithTimeout(ctx, p.time)
	defer stop()
	var work sync.WaitGroup
	failed := make(chan error, p.clients+1)
	begin := func(seed uint64, each func(ctx context.Context, r *rand.Rand, done *counts) error) {
		work.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for working.Err() == nil {
				if err := each(working, r, done); err != nil && working.Err() == nil {
					failed <- err
					stop()
				}
			}
		})
	}
	for i := range p.clients {
		begin(uint64(i), p.ask)
	}
	if len(p.swap) > 0 {
		begin(1000, p.change)
	}
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for working.Err() == nil && err == nil {
		select {
		case <-tick.C:
			err = see()
		case <-working.Done():
		}
	}
	stop()
	work.Wait()
	select {
	case err = <-failed:
	default:
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return looks, done, err
	}
	transport.CloseIdleConnections()
	return looks, done, p.rest(see, &looks)
}

// rest waits until the server is idle and takes the last snapshot.
func (p *plan) rest(see func() error, looks *[]look) error {
	for range 100 {
		l, err := p.look(0)
		if err != nil {
			return err
		}
		if l.pages == 0 && l.running+l.waiting == 0 && l.goroutines <= (*looks)[0].goroutines+slackGoroutines {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return see()
}

// ask sends a request for one of the adapters and reads all or part of the answer.
func (p *plan) ask(ctx context.Context, r *rand.Rand, done *counts) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	body := map[string]any{"prompt": prompts[r.IntN(len(prompts))], "max_tokens": 1 + r.IntN(p.tokens), "ignore_eos": r.IntN(2) == 0, "stream": r.IntN(2) == 0, "n": 1 + r.IntN(2), "seed": r.IntN(100)}
	name := ""
	switch i := r.IntN(len(p.adapters) + 2); {
	case i < len(p.adapters):
		name = p.adapters[i]
	case i == len(p.adapters) && len(p.swap) > 0:
		name = swapped
	}
	if name != "" {
		body["model"] = name
	}
	a, err := p.post(ctx, "/v1/completions", body)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	switch {
	case a.StatusCode == http.StatusNotFound && name == swapped:
		done.unknown.Add(1)
		return nil
	case a.StatusCode == http.StatusTooManyRequests:
		return nil
	case a.StatusCode != http.StatusOK:
		text, _ := io.ReadAll(io.LimitReader(a.Body, 300))
		return fmt.Errorf("%s: %s", a.Status, text)
	}
	if r.IntN(4) == 0 {
		_, _ = io.CopyN(io.Discard, a.Body, int64(r.IntN(2000)))
		done.left.Add(1)
		return nil
	}
	_, err = io.Copy(io.Discard, a.Body)
	done.answers.Add(1)
	return err
}

var prompts = []string{"Once upon a time", "Once upon a", "The", "a b c d e f g h", "What is it that", "Once upon a time there was"}

// change assigns the name to another adapter, or unloads it for a moment.
func (p *plan) change(ctx context.Context, r *rand.Rand, done *counts) error {
	select {
	case <-time.After(time.Duration(r.IntN(40)) * time.Millisecond):
	case <-ctx.Done():
		return nil
	}
	path, body := "/v1/load_lora_adapter", map[string]any{"lora_name": swapped, "lora_path": p.swap[r.IntN(len(p.swap))], "load_inplace": true}
	if done.swaps.Load() > 0 && r.IntN(10) == 0 {
		path, body = "/v1/unload_lora_adapter", map[string]any{"lora_name": swapped}
	}
	a, err := p.post(ctx, path, body)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	text, _ := io.ReadAll(a.Body)
	if a.StatusCode != http.StatusOK && (a.StatusCode != http.StatusNotFound || strings.Contains(path, "/load")) {
		return fmt.Errorf("%s: %s: %s", path, a.Status, text)
	}
	done.swaps.Add(1)
	return nil
}

func (p *plan) post(ctx context.Context, path string, body map[string]any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	if p.key != "" {
		q.Header.Set("Authorization", "Bearer "+p.key)
	}
	return p.client.Do(q)
}
