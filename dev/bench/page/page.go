// Package page renders docs/benchmarks.md: five tables of the newest figures of every machine, read from result files.
//
// A line of a table is an operation and its input; a column is a machine. A cell has the newest figure of that
// machine, its ratio to the fastest other program in the same run, and the number of its source: the command, the day
// and the file.
package page

import (
	_ "embed" // the text before the tables
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// Result is a report and the file that it was read from, if any.
type Result struct {
	File string
	*bench.Report
}

// Read reads the results in files, and in all *.json files of folders. An error names the file. It is bench.ErrResults
// if the content is not a benchmark report.
func Read(paths ...string) ([]Result, error) {
	var results []Result
	for _, path := range paths {
		names := []string{path}
		if info, err := os.Stat(path); err != nil {
			return nil, plain(err)
		} else if info.IsDir() {
			if names, err = filepath.Glob(filepath.Join(escaped(path), "*.json")); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			if len(names) == 0 {
				return nil, fmt.Errorf("%s: %w: the folder has no *.json file", path, bench.ErrResults)
			}
		}
		for _, name := range names {
			reports, err := readFile(name)
			if err != nil {
				return nil, err
			}
			for _, r := range reports {
				results = append(results, Result{filepath.Base(name), r})
			}
		}
	}
	return results, nil
}

func readFile(name string) ([]*bench.Report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close()
	reports, err := bench.ReadResults(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return reports, nil
}

// plain returns a file system error without the name of the system call.
func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", p.Path, p.Err)
	}
	return err
}

// escaped returns a pattern for filepath.Glob that matches the folder literally.
func escaped(dir string) string {
	return strings.NewReplacer(`*`, `[*]`, `?`, `[?]`, `[`, `[[]`).Replace(dir)
}

//go:embed head.md
var head string

// Markdown renders the page. It depends only on the results, not on their order.
func Markdown(results []Result) string {
	p := &page{}
	for _, r := range results {
		p.results = append(p.results, newResult(r))
	}
	slices.SortStableFunc(p.results, newestFirst)
	for i := range p.results {
		if m := p.results[i].machine; !slices.Contains(p.machines, m) {
			p.machines = append(p.machines, m)
		}
	}
	slices.Sort(p.machines)
	var b strings.Builder
	b.WriteString(head)
	for i := range tables {
		p.table(&b, &tables[i])
	}
	p.list(&b)
	return b.String()
}

// page is a page on its way.
type page struct {
	results  []*result // the newest first
	machines []string  // sorted
	sources  []string  // numbered from one
}

// result is a report with the values that cells need.
type result struct {
	Result
	machine, source string
	byID            map[string]*bench.Row
}

func newResult(r Result) *result {
	x := &result{Result: r, machine: machine(&r.Environment), byID: map[string]*bench.Row{}}
	for _, row := range r.Rows {
		x.byID[row.ID()] = row
	}
	x.source = fmt.Sprintf("%s, %s", r.Environment.Time.UTC().Format(time.DateOnly), x.machine)
	if r.Environment.Build != "" {
		x.source += ", build " + r.Environment.Build
	}
	if r.Command != "" {
		x.source += ": `" + r.Command + "`"
	}
	if r.File != "" {
		x.source += " (" + r.File + ")"
	}
	x.source += "."
	if r.Note != "" {
		x.source += " " + r.Note
	}
	return x
}

// newestFirst orders results independently of the order of files.
func newestFirst(a, b *result) int {
	if c := b.Environment.Time.Compare(a.Environment.Time); c != 0 {
		return c
	}
	if c := strings.Compare(a.File, b.File); c != 0 {
		return c
	}
	return strings.Compare(a.Title, b.Title)
}

// machine returns the name of a machine: its processor with the instruction set used, or a GPU. The number of cores is
// part of the name; threads are shown in a separate line.
func machine(e *bench.Environment) string {
	device, rest, _ := strings.Cut(e.Device, ", ")
	switch {
	case device == "":
		return fmt.Sprintf("%s, %d cores", e.CPU, e.Cores)
	case strings.HasSuffix(rest, " threads") && !strings.Contains(rest, ","):
		return fmt.Sprintf("%s with %s, %d cores", e.CPU, device, e.Cores)
	}
	return device
}

// list prints the sources.
func (p *page) list(b *strings.Builder) {
	b.WriteString("\n## Sources\n\n")
	for i, s := range p.sources {
		fmt.Fprintf(b, "%d. %s\n", i+1, s)
	}
}

// cite returns the number of a source.
func (p *page) cite(r *result) string {
	i := slices.Index(p.sources, r.source)
	if i < 0 {
		i = len(p.sources)
		p.sources = append(p.sources, r.source)
	}
	return fmt.Sprintf("[%d]", i+1)
}
