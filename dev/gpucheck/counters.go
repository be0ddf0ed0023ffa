package gpucheck

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Counters holds the hardware counters of one kernel launch, by their names in ncu, with units.
type Counters struct {
	Kernel string            `json:"kernel"`
	Values map[string]string `json:"values"`
}

// Columns of the table that are derived from several counters or from ncu's rules.
const (
	tensorPipe  = "Tensor Pipe"
	busiestPipe = "Busiest Pipe"
	topStall    = "Top Stall"
	issueCycles = "Warp Cycles Per Issued Instruction"
)

// counted lists counters that show what a kernel waits for, by their names in ncu.
var counted = []string{
	"Duration", tensorPipe, busiestPipe, "DRAM Throughput", "L2 Hit Rate", "Achieved Occupancy", topStall, issueCycles, "Issue Slots Busy",
	"Compute (SM) Throughput", "Memory Throughput", "L2 Cache Throughput", "L1/TEX Cache Throughput", "Registers Per Thread", "Block Size", "Grid Size",
}

// counters parses the output of ncu --csv, which is mixed with the output of the program that it ran. Records of
// counters end before the columns of rules, and a rule is a record without a metric.
func counters(raw []byte) ([]Counters, error) {
	at := bytes.Index(raw, []byte(`"ID",`))
	if at < 0 {
		return nil, errors.New("ncu has printed no counters")
	}
	var table []string
	for line := range strings.Lines(string(raw[at:])) {
		if strings.HasPrefix(line, `"`) {
			table = append(table, line)
		}
	}
	r := csv.NewReader(strings.NewReader(strings.Join(table, "")))
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("ncu's table: %w", err)
	}
	columns := map[string]int{}
	for i, name := range rows[0] {
		columns[name] = i
	}
	for _, name := range []string{"ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"} {
		if _, ok := columns[name]; !ok {
			return nil, fmt.Errorf("ncu's table has the columns %q, expected %q", rows[0], name)
		}
	}
	var all []Counters
	launches := map[string]int{}
	for _, row := range rows[1:] {
		field := func(name string) string {
			if i, ok := columns[name]; ok && i < len(row) {
				return row[i]
			}
			return ""
		}
		n, ok := launches[field("ID")]
		if !ok {
			n = len(all)
			launches[field("ID")], all = n, append(all, Counters{field("Kernel Name"), map[string]string{}})
		}
		if name := field("Metric Name"); name != "" {
			all[n].set(name, strings.TrimSpace(field("Metric Value")+" "+field("Metric Unit")))
		} else {
			all[n].rule(field("Rule Description"))
		}
	}
	if len(all) == 0 {
		return nil, errors.New("ncu has seen none of the kernels")
	}
	for i := range all {
		all[i].derive()
	}
	return all, nil
}

// set sets a value unless it is set: ncu has a name in two sections, first a share of the peak and then a rate.
func (c *Counters) set(name, value string) {
	if _, ok := c.Values[name]; !ok {
		c.Values[name] = value
	}
}

// Texts of ncu's rules about the busiest pipe and the most frequent stall, and names of the counters of stalls.
var (
	pipeRule   = regexp.MustCompile(`^(.+) is the highest-utilized pipeline \((.+?)%\)`)
	tensorRule = regexp.MustCompile(`dominated by its Tensor`)
	stallRule  = regexp.MustCompile(`being stalled waiting (?:on|for) an? (.+?)\. (?s:.*)represents about (.+?)%`)
	stalled    = regexp.MustCompile(`^Stall (.+)$|issue_stalled_(\w+?)(?:_not_issued)?(?:_per|\.)`)
)

func (c *Counters) rule(text string) {
	if m := pipeRule.FindStringSubmatch(text); m != nil {
		c.set(busiestPipe, m[1]+" "+m[2]+" %")
		if tensorRule.MatchString(text) {
			c.set(tensorPipe, m[2]+" %")
		}
	}
	if m := stallRule.FindStringSubmatch(text); m != nil {
		c.set(topStall, m[1]+", "+m[2]+" %")
	}
}

// derive sets the largest counters of tensor pipes and of stalls, which are more exact than the rules.
func (c *Counters) derive() {
	tensor, stall := 0.0, 0.0
	for name, value := range c.Values {
		x := leading(value)
		if (strings.HasPrefix(name, "Tensor (") || strings.Contains(name, "pipe_tensor")) && x >= tensor {
			tensor, c.Values[tensorPipe] = x, value
		}
		if m := stalled.FindStringSubmatch(name); m != nil && x > stall {
			stall = x
			c.Values[topStall] = fmt.Sprintf("%s, %.1f %%", m[1]+m[2], 100*x/leading(c.Values[issueCycles]))
		}
	}
}

// leading returns the number at the start of a value, or 0.
func leading(value string) float64 {
	number, _, _ := strings.Cut(value, " ")
	x, err := strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64)
	if err != nil {
		return 0
	}
	return x
}

func countersTable(all []Counters) string {
	var b strings.Builder
	b.WriteString("| kernel | " + strings.Join(counted, " | ") + " |\n|---" + strings.Repeat("|---", len(counted)) + "|\n")
	for _, c := range all {
		fmt.Fprintf(&b, "| %s |", cell(c.Kernel))
		for _, name := range counted {
			fmt.Fprintf(&b, " %s |", cell(c.Values[name]))
		}
		b.WriteString("\n")
	}
	return b.String()
}
