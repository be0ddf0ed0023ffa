package load

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// task is one operation in a process of its own.
type task struct {
	file, out string
	detail    string // further details
}

// operation prepares a task. It returns a function to be timed, which returns a function to be called after the
// timing.
type operation func(t *task) (run func() (release func() error, err error), err error)

// Measure runs one operation of lorafuse and writes an Answer. Options.Self starts it, with args OP, FILE, OUT and
// REPEAT.
func Measure(w io.Writer, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("load: found %d arguments, expected OP FILE OUT REPEAT", len(args))
	}
	setUp := operations[args[0]]
	if setUp == nil {
		return fmt.Errorf("load: found operation %q, expected one of %s", args[0], strings.Join(slices.Sorted(maps.Keys(operations)), ", "))
	}
	repeat, err := strconv.Atoi(args[3])
	if err != nil || repeat < 1 {
		return fmt.Errorf("load: found %q times, expected 1 or more", args[3])
	}
	t := &task{file: args[1], out: args[2]}
	run, err := setUp(t)
	if err != nil {
		return err
	}
	var a Answer
	for range repeat {
		start := time.Now()
		release, err := run()
		if err != nil {
			return err
		}
		a.Seconds = append(a.Seconds, time.Since(start).Seconds())
		if release != nil {
			if err := release(); err != nil {
				return err
			}
		}
	}
	a.PeakRSS, a.Detail = bench.PeakRSS(), t.detail
	return json.NewEncoder(w).Encode(a)
}
