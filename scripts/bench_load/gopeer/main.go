// Command gopeer benchmarks another Go reader of the format: gopeer OP FILE [OUT] [REPEAT].
//
// It runs OP on FILE, REPEAT times in this process, and prints one line of
// JSON with the seconds of each run and the peak memory of the process. Setup
// and cleanup are not timed.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/maruel/safetensors"
)

// operation prepares an operation on a file and returns the function to time. The
// release function that run returns is called after the timed part.
type operation func(file, out string) (run func() (release func(), err error), err error)

var operations = map[string]operation{
	"open": func(file, _ string) (func() (func(), error), error) {
		return func() (func(), error) {
			m := &safetensors.Mapped{}
			err := m.Open(file)
			return func() { m.Close() }, err
		}, nil
	},
	"parse": func(file, _ string) (func() (func(), error), error) {
		data, err := os.ReadFile(file)
		return func() (func(), error) {
			_, err := safetensors.Parse(data)
			return func() {}, err
		}, err
	},
}

func main() {
	if err := measure(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gopeer:", err)
		os.Exit(1)
	}
}

func measure(args []string) error {
	if len(args) < 2 || operations[args[0]] == nil {
		return fmt.Errorf("usage: gopeer OP FILE [OUT] [REPEAT]")
	}
	args = append(args, "", "1")[:4]
	repeat, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	run, err := operations[args[0]](args[1], args[2])
	if err != nil {
		return err
	}
	var seconds []float64
	for range repeat {
		start := time.Now()
		release, err := run()
		if err != nil {
			return err
		}
		seconds = append(seconds, time.Since(start).Seconds())
		release()
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"seconds": seconds, "peak_rss": peakRSS()})
}

// peakRSS returns the peak resident memory of this process in bytes.
func peakRSS() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	fmt.Sscan(rest, &kib)
	return kib << 10
}
