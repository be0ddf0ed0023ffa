package gpucheck

import (
	"encoding/json"
	"fmt"
	"slices"

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
	for _, name := range bench.Targets() {
		n := len(all)
		for i := range r.Steps {
			if r.Steps[i].Bench == nil {
				continue
			}
			for _, m := range r.Steps[i].Bench.Marks {
				if m.Name == name {
					a := m.asked()
					if r.Small {
						a.Word = "not judged"
					}
					all = append(all, a)
				}
			}
		}
		if a, ok := r.besidePEFT(); ok && name == bench.TargetPEFT {
			all = append(all, a)
		}
		if len(all) == n {
			all = append(all, Asked{Name: name, Asked: boundOf(name), Found: "–", Word: "not measured"})
		}
	}
	return slices.Clip(all)
}

// besidePEFT holds our training step against the fastest of PEFT's, which another program
// has measured.
func (r *Report) besidePEFT() (Asked, bool) {
	for ours := range r.rows("lorafuse") {
		fastest := 0.0
		for theirs := range r.rows("torch + PEFT") {
			if theirs.Group == ours.Group && theirs.Input == ours.Input && theirs.Median > 0 && (fastest == 0 || theirs.Median < fastest) {
				fastest = theirs.Median
			}
		}
		if fastest == 0 || ours.Median == 0 {
			continue
		}
		ratio := ours.Median / fastest
		m := Mark{Name: bench.TargetPEFT, Row: ours.Group + ", " + ours.Input, Asked: bench.MostPEFT, Ratio: ratio, Met: ratio <= bench.MostPEFT}
		a := m.asked()
		if r.Small {
			a.Word = "not judged"
		}
		return a, true
	}
	return Asked{}, false
}

func (m *Mark) asked() Asked {
	a := Asked{Name: m.Name, Asked: bound(m.Asked, m.Least), Found: fmt.Sprintf("%.3f", m.Ratio), On: m.Row, Word: "MISSED"}
	if m.Met {
		a.Word = "met"
	}
	return a
}

func bound(x float64, least bool) string {
	if least {
		return fmt.Sprintf("≥ %.3g", x)
	}
	return fmt.Sprintf("≤ %.3g", x)
}

// boundOf returns the limit of a target that no mark states.
func boundOf(name string) string {
	switch name {
	case bench.TargetProduct:
		return bound(bench.LeastProduct, true)
	case bench.TargetLayer:
		return bound(bench.MostLayer, false)
	case bench.TargetUpload:
		return bound(bench.MostUpload, false)
	case bench.TargetStep:
		return bound(bench.LeastStep, true)
	case bench.TargetPEFT:
		return bound(bench.MostPEFT, false)
	case bench.TargetDecode:
		return bound(bench.LeastDecode, true)
	}
	return ""
}
