package gpucheck

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Counters holds the hardware counters of one kernel launch, by their names in ncu, with units.
type Counters struct {
	Kernel string            `json:"kernel"`
	Values map[string]string `json:"values"`
}

// counted lists counters that show what a kernel waits for, by their names in ncu.
var counted = []string{
	"Duration", "Compute (SM) Throughput", "Memory Throughput", "DRAM Throughput", "L2 Cache Throughput", "L1/TEX Cache Throughput", "L2 Hit Rate",
	"Issue Slots Busy", "Achieved Occupancy", "Registers Per Thread", "Warp Cycles Per Issued Instruction",
}

// counters parses the output of ncu --csv, which is mixed with the output of the program that it ran.
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
	rows, err := csv.NewReader(strings.NewReader(strings.Join(table, ""))).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("ncu's table: %w", err)
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	id, kernel, name, unit, value := column("ID"), column("Kernel Name"), column("Metric Name"), column("Metric Unit"), column("Metric Value")
	if min(id, kernel, name, unit, value) < 0 {
		return nil, fmt.Errorf("ncu's table has the columns %q", rows[0])
	}
	var all []Counters
	launches := map[string]int{}
	for _, row := range rows[1:] {
		n, ok := launches[row[id]]
		if !ok {
			n = len(all)
			launches[row[id]], all = n, append(all, Counters{row[kernel], map[string]string{}})
		}
		if row[name] != "" {
			all[n].Values[row[name]] = strings.TrimSpace(row[value] + " " + row[unit])
		}
	}
	if len(all) == 0 {
		return nil, errors.New("ncu has seen none of the kernels")
	}
	return all, nil
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
