package gpucheck

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// Benchmark is the output of gpubench, as far as it is shown.
type Benchmark struct {
	Title string `json:"title"`
	Rows  []Row  `json:"rows"`
	Marks []Mark `json:"marks"`
}

// Row is a row of a benchmark.
type Row struct {
	Group   string  `json:"group"`
	Program string  `json:"program"`
	Name    string  `json:"name"`
	Input   string  `json:"input"`
	Failure string  `json:"failure,omitempty"`
	Runs    int     `json:"runs"`
	Median  float64 `json:"median_s"`
	P10     float64 `json:"p10_s"`
	P90     float64 `json:"p90_s"`
	Rate    float64 `json:"gb_per_s,omitempty"`
	GFlops  float64 `json:"gflop_per_s,omitempty"`
	Speed   float64 `json:"token_per_s,omitempty"`
	OfFlops float64 `json:"of_peak_flops,omitempty"`
	OfBytes float64 `json:"of_peak_bytes,omitempty"`
	Peak    struct {
		Flops float64 `json:"flop_per_s,omitempty"`
		Bytes float64 `json:"byte_per_s,omitempty"`
	} `json:"peak,omitzero"`
}

// Mark is a target of a benchmark with its result.
type Mark struct {
	Name   string  `json:"name"`
	Row    string  `json:"row"`
	Beside string  `json:"beside"`
	Asked  float64 `json:"asked"`
	Ratio  float64 `json:"ratio"`
	Least  bool    `json:"least,omitempty"`
	Met    bool    `json:"met"`
}

// readBenchmark parses the output of a suite; empty output is an error.
func readBenchmark(raw []byte) (*Benchmark, error) {
	var b Benchmark
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, fmt.Errorf("its report: %w", err)
	}
	if len(b.Rows) == 0 {
		return nil, fmt.Errorf("its report has no rows")
	}
	return &b, nil
}

// Asked is a target with its result.
type Asked struct {
	Name  string `json:"name"`
	Asked string `json:"asked"`
	Found string `json:"found"`
	On    string `json:"on,omitempty"`
	Word  string `json:"verdict"` // met, MISSED, not judged or not measured
}

// asked compares the measurements with the targets. It includes targets without measurements.
func (r *Report) asked() (all []Asked) {
	for _, t := range bench.Targets() {
		found := r.across(&t)
		for i := range r.Steps {
			if b := r.Steps[i].Bench; b != nil {
				found = append(found, slices.DeleteFunc(slices.Clone(b.Marks), func(m Mark) bool { return m.Name != t.Name })...)
			}
		}
		for i := range found {
			a := found[i].asked()
			if r.Small {
				a.Word = "not judged"
			}
			all = append(all, a)
		}
		if len(found) == 0 {
			all = append(all, Asked{Name: t.Name, Asked: bound(t.Limit, t.Least), Found: "–", Word: "not measured"})
		}
	}
	return slices.Clip(all)
}

// across returns the results of a target that compares rows of several suites, or rows that no suite marks.
func (r *Report) across(t *bench.Target) (found []Mark) {
	add := func(row *Row, ratio float64) {
		if ratio > 0 {
			met := ratio <= t.Limit && !t.Least || ratio >= t.Limit && t.Least
			found = append(found, Mark{Name: t.Name, Row: row.Group + ": " + row.Name + ", " + row.Input, Asked: t.Limit, Ratio: ratio, Least: t.Least, Met: met})
		}
	}
	served, most := &Row{}, 1 // the row with the most sequences
	for row := range r.rows("lorafuse") {
		texts, product, attention := 0, row.Group == "x·Wᵀ" || row.Group == "dy·W", row.Group == "Attention" && strings.Contains(row.Input, "heads of 128")
		switch fmt.Sscanf(row.Name, "%d texts", &texts); t.Name {
		case bench.TargetGemm:
			if product && (strings.HasPrefix(row.Input, "m=8192 ") || r.Small) {
				add(row, r.fastest("torch", row)/row.Median)
			}
		case bench.TargetForward, bench.TargetBackward:
			if attention && strings.HasPrefix(row.Name, "backward") == (t.Name == bench.TargetBackward) {
				add(row, r.fastest("torch", row)/row.Median)
			}
		case bench.TargetSpeed:
			if row.Group == "Training step" {
				add(row, row.Speed)
			}
		case bench.TargetPEFT:
			if peft := r.fastest("torch + PEFT", row); peft > 0 {
				add(row, row.Median/peft)
			}
		case bench.TargetAdapter:
			if name, _, ok := strings.Cut(row.Name, ", adapter"); ok && row.Group == "One token" {
				without := *row
				if without.Name = name; r.fastest("lorafuse", &without) > 0 {
					add(row, row.Median/r.fastest("lorafuse", &without))
				}
			}
		case bench.TargetOne:
			if texts == 1 {
				add(row, row.OfBytes)
			}
		case bench.TargetServed:
			if texts > most {
				served, most = row, texts
			}
		}
	}
	add(served, served.OfBytes)
	return found
}

// fastest returns the shortest time of a program for the operation of a row, or 0. PEFT's steps have names of their own.
func (r *Report) fastest(program string, of *Row) (best float64) {
	for row := range r.rows(program) {
		if row.Program == program && row.Group == of.Group && row.Input == of.Input && (row.Name == of.Name || program == "torch + PEFT") && row.Median > 0 && (best == 0 || row.Median < best) {
			best = row.Median
		}
	}
	return best
}

func (m *Mark) asked() Asked {
	a := Asked{Name: m.Name, Asked: bound(m.Asked, m.Least), Found: fmt.Sprintf("%.3f", m.Ratio), On: m.Row, Word: "MISSED"}
	if m.Ratio >= 1000 {
		a.Found = fmt.Sprintf("%.0f", m.Ratio)
	}
	if m.Met {
		a.Word = "met"
	}
	return a
}

func bound(x float64, least bool) string {
	number := fmt.Sprintf("%.3g", x)
	if x >= 1000 {
		number = fmt.Sprintf("%.0f", x)
	}
	if least {
		return "≥ " + number
	}
	return "≤ " + number
}
