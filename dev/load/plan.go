package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// plan describes the requests to send.
type plan struct {
	url, key      string
	requests      int
	streams       int
	rate          float64
	words, shared int
	vocab         int // prompts are ids below it, 0: words
	tokens        int
	seed          uint64
	variants      []map[string]any
}

func (p *plan) check() error {
	switch {
	case p.url == "":
		return errors.New("--url is missing")
	case p.requests < 1 || p.streams < 1 || p.words < 1 || p.shared < 0 || p.tokens < 1:
		return errors.New("--requests, --streams, --words and --tokens are 1 or more, --shared is 0 or more")
	case p.vocab != 0 && p.vocab <= reserved:
		return fmt.Errorf("--vocab: found %d, expected more than %d", p.vocab, reserved)
	case !(p.rate >= 0):
		return fmt.Errorf("--rate: found %v, expected 0 or more", p.rate)
	case len(p.variants) == 0:
		return errors.New("--variants: found an empty list, expected [{}] or more")
	}
	return nil
}

// sample is the result of one request. Times count from the start of the run.
type sample struct {
	due    time.Duration
	chunks []time.Duration // when pieces of the answer came
	end    time.Duration
	prompt int // tokens
	tokens int // of the answer
	err    error
}

// do sends the requests and returns their samples in order.
func (p *plan) do(ctx context.Context) []sample {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = max(p.streams, p.requests)
	defer transport.CloseIdleConnections()
	a := asker{p, &http.Client{Transport: transport}, time.Now()}
	bodies := p.bodies()
	samples := make([]sample, len(bodies))
	var group sync.WaitGroup
	if p.rate > 0 {
		due, r := time.Duration(0), rand.New(rand.NewPCG(p.seed, 1))
		for i, body := range bodies {
			if i > 0 {
				due += time.Duration(r.ExpFloat64() / p.rate * float64(time.Second))
			}
			select {
			case <-time.After(due - time.Since(a.began)):
			case <-ctx.Done(): // the request reports it
			}
			at := due
			group.Go(func() { samples[i] = a.ask(ctx, body, at) })
		}
		group.Wait()
		return samples
	}
	next := make(chan int)
	for range p.streams {
		group.Go(func() {
			for i := range next {
				samples[i] = a.ask(ctx, bodies[i], time.Since(a.began))
			}
		})
	}
	for i := range bodies {
		next <- i
	}
	close(next)
	group.Wait()
	return samples
}

// bodies returns the request bodies.
func (p *plan) bodies() []map[string]any {
	r := rand.New(rand.NewPCG(p.seed, 0))
	sharedWords, sharedIDs := words(r, p.shared), p.ids(r, p.shared)
	bodies := make([]map[string]any, p.requests)
	for i := range bodies {
		var prompt any = strings.TrimSpace(sharedWords + " " + words(r, p.words))
		if p.vocab > 0 {
			prompt = slices.Concat(sharedIDs, p.ids(r, p.words))
		}
		bodies[i] = map[string]any{
			"prompt": prompt, "max_tokens": p.tokens, "min_tokens": p.tokens, "ignore_eos": true,
			"temperature": 0, "stream": true, "stream_options": map[string]any{"include_usage": true},
		}
		maps.Copy(bodies[i], p.variants[i%len(p.variants)])
	}
	return bodies
}

// reserved are the first ids of a vocabulary, which mostly have meanings of their own.
const reserved = 16

// ids returns n random token IDs, or none without a vocabulary.
func (p *plan) ids(r *rand.Rand, n int) []int {
	if p.vocab == 0 {
		return nil
	}
	ids := make([]int, n)
	for i := range ids {
		ids[i] = reserved + r.IntN(p.vocab-reserved)
	}
	return ids
}

// words returns n random words of a few letters.
func words(r *rand.Rand, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		for range 2 + r.IntN(5) {
			b.WriteByte('a' + byte(r.IntN(26)))
		}
	}
	return b.String()
}

// asker asks a server.
type asker struct {
	*plan
	client *http.Client
	began  time.Time
}

// ask makes one request and reads its answer to the end.
func (a *asker) ask(ctx context.Context, body map[string]any, due time.Duration) (s sample) {
	s.due = due
	defer func() { s.end = time.Since(a.began) }()
	raw, err := json.Marshal(body)
	if err != nil {
		return sample{due: due, err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(a.url, "/")+"/v1/completions", bytes.NewReader(raw))
	if err != nil {
		return sample{due: due, err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	if a.key != "" {
		req.Header.Set("Authorization", "Bearer "+a.key)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		s.err = err
		return s
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		s.err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
		return s
	}
	s.err = a.read(resp.Body, &s)
	return s
}

// event holds the fields of a stream event that are used.
type event struct {
	Choices []struct {
		Text   string
		Finish *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt int `json:"prompt_tokens"`
		Tokens int `json:"completion_tokens"`
	}
	Error *struct{ Message string }
}

// read reads a stream of events. Events without text count as well, except the last: their tokens do not complete a
// character yet.
func (a *asker) read(r io.Reader, s *sample) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			if s.tokens == 0 {
				return errors.New("the stream has no usage, or no tokens")
			}
			return nil
		}
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("event %.100q: %w", data, err)
		}
		if e.Error != nil {
			return fmt.Errorf("the stream says: %s", e.Error.Message)
		}
		if len(e.Choices) > 0 && (e.Choices[0].Text != "" || e.Choices[0].Finish == nil) {
			s.chunks = append(s.chunks, time.Since(a.began))
		}
		if e.Usage != nil {
			s.prompt, s.tokens = e.Usage.Prompt, e.Usage.Tokens
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the stream has no end")
}
