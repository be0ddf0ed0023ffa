// Package gpucheck runs all checks that need a GPU and writes one report: PTX wrappers compared with their C++ versions,
// tests and goldens on the device, compute-sanitizer on the kernels, and benchmarks with their targets.
//
// The machine needs only a driver: all programs come in a pack that was built elsewhere. The report on disk is always
// complete, so that losing the machine loses no results, and a later run continues from it.
package gpucheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Status is the state of a step.
type Status string

// A step is interrupted if it started but did not end because the machine or the total time ran out; it may be run
// again. A step that exceeds its own time limit has failed.
const (
	NotRun      Status = "not run"
	Interrupted Status = "interrupted"
	Passed      Status = "passed"
	Failed      Status = "FAILED"
	Skipped     Status = "skipped"
)

// Result is the outcome of a step.
type Result struct {
	Name    string     `json:"name"`
	What    string     `json:"what"`
	Part    int        `json:"part,omitempty"` // 0 for the device, which is of every part
	Status  Status     `json:"status"`
	Reason  string     `json:"reason,omitempty"` // of anything but passed
	Seconds float64    `json:"seconds"`
	Date    time.Time  `json:"date,omitzero"` // when it began
	Tests   *Tests     `json:"tests,omitempty"`
	Margins []Margin   `json:"margins,omitempty"`
	Bench   *Benchmark `json:"benchmark,omitempty"`
	// Counters are the hardware's, of kernels.
	Counters []Counters `json:"counters,omitempty"`
	Clock    *Clock     `json:"clock,omitempty"` // while it was measured
	Tail     string     `json:"tail,omitempty"`  // the end of its output, if it did not pass
}

// Margin is the smallest distance between an operation's error and the permitted error, over all cases.
type Margin struct {
	Operation string  `json:"operation"`
	Case      string  `json:"case"`
	Error     float64 `json:"error"`
	Limit     float64 `json:"limit"`
}

// Clock holds the nvidia-smi readings taken while a step ran.
type Clock struct {
	LeastMHz float64 `json:"least_mhz"`
	MostMHz  float64 `json:"most_mhz"`
	Watts    float64 `json:"most_watts"`
	Celsius  float64 `json:"most_celsius"`
}

// Tests counts the results in a test program's output.
type Tests struct {
	Passed  int      `json:"passed"`
	Failed  int      `json:"failed"`
	Skipped int      `json:"skipped"`
	Names   []string `json:"failures,omitempty"`
}

// Report is all of it.
type Report struct {
	Title  string    `json:"title"`
	Date   time.Time `json:"date"` // when the run started
	Commit string    `json:"commit"`
	Pack   string    `json:"pack"` // build information of the programs
	Device string    `json:"device,omitempty"`
	Driver string    `json:"driver,omitempty"` // its library
	GPU    []string  `json:"gpu,omitempty"`    // output of nvidia-smi
	Host   string    `json:"host"`
	Small  bool      `json:"small,omitempty"` // in sizes that show that it runs, and nothing else
	Steps  []Result  `json:"steps"`
	Asked  []Asked   `json:"targets"`
}

// Names of the files of a report.
const (
	JSONFile     = "report.json"
	MarkdownFile = "report.md"
	LogFile      = "log.txt"
)

// ReadReport reads a report that another run has left.
func ReadReport(name string) (*Report, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &r, nil
}

// Write writes report.json and report.md into a folder, each whole or not at
// all.
func (r *Report) Write(folder string) error {
	r.Asked = r.asked()
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		replace(filepath.Join(folder, JSONFile), append(raw, '\n')),
		replace(filepath.Join(folder, MarkdownFile), []byte(r.Markdown())),
	)
}

// replace writes a file atomically, through a new file next to the old one.
func replace(name string, data []byte) error {
	if err := os.WriteFile(name+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// Count returns the number of steps with a status.
func (r *Report) Count(s Status) (n int) {
	for i := range r.Steps {
		if r.Steps[i].Status == s {
			n++
		}
	}
	return n
}

// result finds the result of a step.
func (r *Report) result(name string) *Result {
	i := slices.IndexFunc(r.Steps, func(x Result) bool { return x.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Steps[i]
}

// goOn copies from an earlier report the results of steps that passed or failed. Skipped steps are tried again, since
// the reason may no longer hold. Results of steps for which this pack has no program are kept.
func (r *Report) goOn(old *Report) error {
	if old.Commit != r.Commit || old.Small != r.Small {
		return fmt.Errorf("found a report of commit %s, small sizes: %v; expected %s, %v", old.Commit, old.Small, r.Commit, r.Small)
	}
	r.Date = old.Date
	for i := range r.Steps {
		if o := old.result(r.Steps[i].Name); o != nil && (o.Status == Passed || o.Status == Failed) {
			r.Steps[i] = *o
		}
	}
	for i := range old.Steps {
		if r.result(old.Steps[i].Name) == nil {
			r.Steps = append(r.Steps, old.Steps[i])
		}
	}
	return nil
}
