package gpucheck

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// Markdown formats the report for readers.
func (r *Report) Markdown() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("# %s\n\n", r.Title)
	device := r.Device
	if device == "" {
		device = "none was found"
	}
	p("- device: %s\n- driver: %s\n- date: %s\n- commit: %s\n- host: %s\n- built with: %s\n", device, r.Driver, r.Date.Format(time.DateTime), r.Commit, r.Host, r.Pack)
	for _, line := range r.GPU {
		p("- nvidia-smi: %s\n", line)
	}
	if r.Small {
		p("\nSizes are small: this shows that everything runs, and nothing of its speed.\n")
	}
	p("\n%d passed, %d failed, %d skipped, %d not run.\n", r.Count(Passed), r.Count(Failed), r.Count(Skipped), r.Count(NotRun)+r.Count(Interrupted))

	p("\n## Targets\n\n| asked of | asked | found | verdict | on |\n|---|---|---|---|---|\n")
	for _, a := range r.Asked {
		p("| %s | %s | %s | %s | %s |\n", cell(a.Name), a.Asked, a.Found, a.Word, cell(a.On))
	}
	p("\n## Steps\n\n| part | step | status | seconds | what it is | what there is to say |\n|---|---|---|---|---|---|\n")
	for i := range r.Steps {
		s := &r.Steps[i]
		p("| %s | %s | %s | %.1f | %s | %s |\n", s.part(), s.Name, s.Status, s.Seconds, cell(s.What), cell(s.said()))
	}
	for i := range r.Steps {
		if s := &r.Steps[i]; s.Tail != "" {
			p("\n## %s: %s\n\n```\n%s\n```\n", s.Name, s.Status, strings.TrimSpace(strings.ReplaceAll(s.Tail, "```", "'''")))
		}
	}
	b.WriteString(r.besideTorch())
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.Bench != nil {
			p("\n## %s\n\n%s", s.Name, s.Bench.table())
		}
		if c := s.Clock; c != nil {
			p("\nMeanwhile the clock was %.0f to %.0f MHz, %.0f W and %.0f °C at most.\n", c.LeastMHz, c.MostMHz, c.Watts, c.Celsius)
		}
		if len(s.Margins) > 0 {
			p("\n## %s: errors\n\n| operation | error | allowed | share | in |\n|---|---|---|---|---|\n", s.Name)
			for _, m := range s.Margins {
				p("| %s | %.2g | %.2g | %.2f | %s |\n", m.Operation, m.Error, m.Limit, m.Error/m.Limit, cell(m.Case))
			}
		}
		if len(s.Counters) > 0 {
			p("\n## %s\n\n%s", s.Name, countersTable(s.Counters))
		}
	}
	return b.String()
}

// besideTorch compares lorafuse's and torch's rows for the same input.
func (r *Report) besideTorch() string {
	var b strings.Builder
	for ours := range r.rows("lorafuse") {
		for theirs := range r.rows("torch") {
			same := ours.Name == theirs.Name || theirs.Program != "torch" // forward with forward; PEFT's steps have names of their own
			if same && ours.Group == theirs.Group && ours.Input == theirs.Input && ours.Median > 0 && theirs.Median > 0 {
				if b.Len() == 0 {
					b.WriteString("\n## Beside PyTorch\n\n| what | on | ours ms | theirs ms | TFLOP/s | theirs | of their time |\n|---|---|---|---|---|---|---|\n")
				}
				name := strings.Replace(theirs.Name, "backward,", "backward without forward,", 1) // as both measure it
				fmt.Fprintf(&b, "| %s, %s, %s | %s | %.4g | %.4g | %s | %s | %.2f |\n", cell(theirs.Group), theirs.Program, cell(name), cell(ours.Input),
					1e3*ours.Median, 1e3*theirs.Median, figure(ours.GFlops/1e3), figure(theirs.GFlops/1e3), ours.Median/theirs.Median)
			}
		}
	}
	return b.String()
}

// rows iterates over rows of programs whose names start with program.
func (r *Report) rows(program string) iter.Seq[*Row] {
	return func(yield func(*Row) bool) {
		for i := range r.Steps {
			if r.Steps[i].Bench == nil {
				continue
			}
			for k := range r.Steps[i].Bench.Rows {
				if row := &r.Steps[i].Bench.Rows[k]; strings.HasPrefix(row.Program, program) && !yield(row) {
					return
				}
			}
		}
	}
}

// part returns the number of the part; it is empty for the device.
func (s *Result) part() string {
	if s.Part == 0 {
		return ""
	}
	return strconv.Itoa(s.Part)
}

// said summarizes the result of a step in a few words.
func (s *Result) said() string {
	parts := []string{}
	if s.Reason != "" {
		parts = append(parts, s.Reason)
	}
	if t := s.Tests; t != nil {
		parts = append(parts, fmt.Sprintf("%d tests passed, %d failed, %d skipped", t.Passed, t.Failed, t.Skipped))
		if len(t.Names) > 0 {
			parts = append(parts, strings.Join(t.Names, ", "))
		}
	}
	if s.Bench != nil {
		parts = append(parts, fmt.Sprintf("%d rows", len(s.Bench.Rows)))
	}
	return strings.Join(parts, "; ")
}

// table formats all rows with the peaks that they are compared with.
func (m *Benchmark) table() string {
	var b strings.Builder
	b.WriteString("| what | on | runs | median ms | p10 | p90 | GB/s | TFLOP/s | tokens/s | of peak flops | of bandwidth |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	group := ""
	var flops, bytes float64
	for i := range m.Rows {
		r := &m.Rows[i]
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(&b, "| **%s** | | | | | | | | | | |\n", cell(group))
		}
		flops, bytes = max(flops, r.Peak.Flops), max(bytes, r.Peak.Bytes)
		if r.Failure != "" {
			why := r.Failure
			if why != bench.ErrMemory.Error() {
				why = "FAILED: " + why
			}
			fmt.Fprintf(&b, "| %s, %s | %s | %s | | | | | | | | |\n", cell(r.Program), cell(r.Name), cell(r.Input), cell(why))
			continue
		}
		fmt.Fprintf(&b, "| %s, %s | %s | %d | %.4g | %.4g | %.4g | %s | %s | %s | %s | %s |\n", cell(r.Program), cell(r.Name), cell(r.Input), r.Runs,
			1e3*r.Median, 1e3*r.P10, 1e3*r.P90, figure(r.Rate), figure(r.GFlops/1e3), figure(r.Speed), figure(r.OfFlops), figure(r.OfBytes))
	}
	if flops > 0 {
		fmt.Fprintf(&b, "\nMeasured peaks: %.4g TFLOP/s, %.4g GB/s.\n", flops/1e12, bytes/1e9)
	}
	return b.String()
}

func figure(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g", x)
}

// cell escapes text for a table cell.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s)
}
