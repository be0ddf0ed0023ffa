// Command gpucheck packs the GPU checks and runs the pack on a machine with a GPU.
// scripts/gpu_check.sh builds both.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/lorafuse/lorafuse/dev/gpucheck"
)

const usage = `usage:
  gpucheck pack DIR BIN ROOT <files     packs the programs in BIN and the listed files of ROOT
  gpucheck pack --beside DIR BIN ROOT <files    does not copy the files, because ROOT travels with the pack
  gpucheck run --from DIR --out OUT     runs the pack`

// Exit statuses for failed steps, wrong usage, no device, and steps skipped for lack of
// time.
const (
	exitFailed     = 1
	exitUsage      = 2
	exitNothing    = 3
	exitUnfinished = 4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := errors.New(usage)
	if len(os.Args) > 1 && os.Args[1] == "pack" {
		err = pack(os.Args[2:])
	} else if len(os.Args) > 1 && os.Args[1] == "run" {
		err = run(ctx, os.Args[2:])
	}
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "gpucheck:", err)
	switch {
	case errors.Is(err, gpucheck.ErrSteps), ctx.Err() != nil:
		os.Exit(exitFailed)
	case errors.Is(err, gpucheck.ErrNothing):
		os.Exit(exitNothing)
	case errors.Is(err, gpucheck.ErrUnfinished):
		os.Exit(exitUnfinished)
	}
	os.Exit(exitUsage)
}

func pack(args []string) error {
	f := flag.NewFlagSet("gpucheck pack", flag.ContinueOnError)
	beside := f.Bool("beside", false, "leave the files in their checkout")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 3 {
		return errors.New(usage)
	}
	var tree []string
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		tree = append(tree, lines.Text())
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return gpucheck.Build(f.Arg(0), f.Arg(1), f.Arg(2), tree, *beside)
}

func run(ctx context.Context, args []string) error {
	var o gpucheck.Options
	var only string
	f := flag.NewFlagSet("gpucheck run", flag.ContinueOnError)
	f.StringVar(&o.From, "from", "", "folder of the pack")
	f.StringVar(&o.Out, "out", "", "folder of the report")
	f.StringVar(&o.Tree, "tree", ".", "a checkout, for a pack without its files")
	f.StringVar(&only, "only", "", "names of the steps to run, with commas between them (default: all)")
	f.IntVar(&o.Part, "part", 0, "run the steps of this part, less than nine minutes; 0 for all parts")
	f.StringVar(&o.Continue, "continue", "", "report.json of an earlier run, whose ended steps are not run again")
	f.DurationVar(&o.Limit, "limit", 0, "how long all of it may take; 0 for as long as it takes")
	f.BoolVar(&o.Small, "simulate", false, "small sizes, for the simulated driver")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.From == "" || o.Out == "" || f.NArg() > 0 {
		return errors.New(usage)
	}
	if only != "" {
		o.Only = strings.Split(only, ",")
	}
	o.Log = os.Stderr
	_, err := gpucheck.Run(ctx, o)
	return err
}
