package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Answer is the output of a measured program.
type Answer struct {
	Seconds []float64 `json:"seconds"`  // of each time, the first in this process first
	PeakRSS int64     `json:"peak_rss"` // peak memory of the process in bytes; 0 if unknown
	Detail  string    `json:"detail,omitempty"`
}

// call runs an operation of a program.
func call(ctx context.Context, command []string, op, file, out string, repeat int) (*Answer, error) {
	args := append(command[1:len(command):len(command)], op, file, out, strconv.Itoa(repeat))
	c := exec.CommandContext(ctx, command[0], args...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	failed := func(err error) error {
		return fmt.Errorf("%s %s: %w%s", filepath.Base(command[len(command)-1]), op, err, lastLine(stderr.String()))
	}
	if err := c.Run(); err != nil {
		return nil, failed(err)
	}
	var a Answer
	if err := json.Unmarshal(stdout.Bytes(), &a); err != nil {
		return nil, failed(err)
	}
	if len(a.Seconds) != repeat {
		return nil, failed(fmt.Errorf("answered %d times, expected %d", len(a.Seconds), repeat))
	}
	return &a, nil
}

// lastLine returns the last line of a failed program's output.
func lastLine(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last
	}
	return ""
}

// PeersFile is the file in a folder of peers that contains their commands.
const PeersFile = "peers.json"

// ReadPeers reads which programs a folder holds, made by
// scripts/bench_load/build.sh: a JSON object of name and command.
func ReadPeers(dir string) (map[string][]string, error) {
	path := filepath.Join(dir, PeersFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load: %w; scripts/bench_load/build.sh makes one", err)
	}
	var commands map[string][]string
	if err := json.Unmarshal(text, &commands); err != nil {
		return nil, fmt.Errorf("load: %s: %w", path, err)
	}
	for name, command := range commands {
		if !slices.Contains(peers, name) {
			return nil, fmt.Errorf("load: %s: found a program %q, expected some of %s", path, name, strings.Join(peers, ", "))
		}
		if len(command) == 0 {
			return nil, fmt.Errorf("load: %s: %s has no command", path, name)
		}
	}
	return commands, nil
}
