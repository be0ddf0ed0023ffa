// Command load sends many completion requests to an OpenAI-compatible server, lorafuse serve or another, and reports
// latency and throughput.
//
//	go run ./dev/load --url http://127.0.0.1:8000 --streams 8 --requests 64 --tokens 64
//	go run ./dev/load --url … --rate 2 --requests 100 --variants '[{"model": "a"}, {"model": "b"}]'
//
// With --rate, requests arrive at random times of that mean rate, whether or not others have finished (an open loop).
// Latency counts from the scheduled arrival. Without --rate, the number of concurrent requests is always --streams.
//
// Every request has its own prompt, random words after the shared prefix of --shared, and generates --tokens tokens,
// ignoring the end of text. Settings that differ between servers or requests go into --variants: JSON objects whose
// fields the requests get in turn, such as {"model": "a"}, or {"lora": [{"id": 0, "scale": 1}]} for llama-server.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "load:", err)
		}
		stop()
		os.Exit(1)
	}
}

// run runs the command. Failed requests are returned as an error after the report.
func run(ctx context.Context, args []string, out io.Writer) error {
	var p plan
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.StringVar(&p.url, "url", "", "address of the server")
	flags.StringVar(&p.key, "key", "", "API key")
	flags.IntVar(&p.requests, "requests", 16, "how many")
	flags.IntVar(&p.streams, "streams", 1, "how many at a time, without --rate")
	flags.Float64Var(&p.rate, "rate", 0, "requests per second that come, 0: as others end")
	flags.IntVar(&p.words, "words", 32, "of each prompt")
	flags.IntVar(&p.shared, "shared", 0, "more words that all prompts begin with")
	flags.IntVar(&p.vocab, "vocab", 0, "prompts are of random token ids below this, as many as --words says: as long for every server")
	flags.IntVar(&p.tokens, "tokens", 64, "of each answer")
	flags.Uint64Var(&p.seed, "seed", 1, "of the words and the times")
	variants := flags.String("variants", "[{}]", "list of JSON objects: fields of the requests, in turns")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(*variants), &p.variants); err != nil {
		return fmt.Errorf("--variants: %w", err)
	}
	if err := p.check(); err != nil {
		return err
	}
	r := newReport(p.do(ctx))
	var err error
	if *asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	} else {
		err = r.table(out)
	}
	if err == nil && r.Failed > 0 {
		err = fmt.Errorf("%d of %d requests failed, the first with: %s", r.Failed, r.Requests, r.Error)
	}
	return err
}
