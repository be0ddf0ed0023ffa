// Command soak puts a lorafuse server under the load of a busy day: requests for many adapters, streams that clients
// abandon, and adapters that are swapped and unloaded while in use. It prints the server's resource usage and fails if
// that grows.
//
//	go run ./dev/soak --url http://127.0.0.1:8000 --for 10m --adapters a,b --swap c,d
//
// The adapters in --adapters must be loaded. Those in --swap are folders below the server's --adapters-dir, and the
// server must allow updates. scripts/soak.sh does all of this.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "soak:", err)
		}
		stop()
		os.Exit(1)
	}
}

// run runs the command. Growth is returned as an error after the table.
func run(ctx context.Context, args []string, out io.Writer) error {
	var p plan
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.StringVar(&p.url, "url", "", "address of the server")
	flags.StringVar(&p.key, "key", "", "API key, which may also load adapters")
	flags.DurationVar(&p.time, "for", time.Minute, "how long")
	flags.DurationVar(&p.every, "every", 0, "between two looks at the server, 0 is a fortieth of --for")
	flags.IntVar(&p.clients, "clients", 6, "that ask at the same time")
	flags.IntVar(&p.tokens, "tokens", 40, "of the longest answers")
	adapters := flags.String("adapters", "", "names to ask for beside that of the model, with commas")
	swap := flags.String("swap", "", "folders that one more name comes to stand for in turns, with commas")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p.adapters, p.swap = split(*adapters), split(*swap)
	if p.url == "" || p.time <= 0 || p.clients < 1 || p.tokens < 1 || p.every < 0 {
		return errors.New("--url is needed, and --for, --clients and --tokens above 0")
	}
	if p.every == 0 {
		p.every = p.time / 40
	}
	looks, done, err := p.do(ctx, out)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d answers, %d left in the middle, %d swaps, %d requests for a name that stood for nothing\n", done.answers.Load(), done.left.Load(), done.swaps.Load(), done.unknown.Load())
	return grown(looks)
}

func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}
