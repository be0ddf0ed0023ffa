// Package bench records and prints benchmark results: rows of samples, the machine they were measured on, and the
// targets that they must meet.
//
// A row is one operation of one program, sampled several times. Its figures are the median and the spread of the
// samples, since on shared machines a mean mostly reflects other tenants. Rows that are compared alternate, so that
// all of them see the same load. The packages below this one define the operations.
package bench

import (
	"encoding/json"
	"math"
	"slices"
)

// Row holds the samples of one operation of one program.
type Row struct {
	Group   string    `json:"group"`                    // the comparison; rows of a group are shown together
	Program string    `json:"program"`                  // who did it
	Name    string    `json:"name"`                     // the operation
	Input   string    `json:"input"`                    // the input of the operation
	Bytes   int64     `json:"bytes,omitempty"`          // moved by one run; 0 if a rate is meaningless
	Flops   float64   `json:"flops,omitempty"`          // operations that one time does
	Tokens  float64   `json:"tokens,omitempty"`         // that one time gets through
	Peak    Peak      `json:"peak,omitzero"`            // of the machine, if the row is compared with it
	PeakRSS int64     `json:"peak_rss_bytes,omitempty"` // peak memory of the process in bytes, 0 if not measured
	Share   float64   `json:"share,omitempty"`          // share of the input that was read, 0 if not measured
	Detail  string    `json:"detail,omitempty"`         // further details
	Failure string    `json:"failure,omitempty"`        // why there are no seconds
	Seconds []float64 `json:"seconds"`                  // of each time, in the order in which they were taken

	stated Figures // figures of a row without samples
}

// Peak holds the maximum rates of the machine for a row's operation.
type Peak struct {
	Flops float64 `json:"flop_per_s,omitempty"` // of matrix products at the row's precision
	Bytes float64 `json:"byte_per_s,omitempty"` // read from memory
}

// ID returns the name of the row, unique within a report.
func (r *Row) ID() string { return r.Group + ": " + r.Program + ": " + r.Name + ", " + r.Input }

// Figures summarizes the samples of a row.
type Figures struct {
	Runs   int     `json:"runs"`
	Median float64 `json:"median_s"`
	P10    float64 `json:"p10_s"`
	P90    float64 `json:"p90_s"`
	Min    float64 `json:"min_s"`
	Rate   float64 `json:"gb_per_s,omitempty"`    // 10^9 bytes in a second, by the median
	GFlops float64 `json:"gflop_per_s,omitempty"` // 10^9 operations in a second, by the median

	Speed   float64 `json:"token_per_s,omitempty"`   // tokens in a second, by the median
	OfFlops float64 `json:"of_peak_flops,omitempty"` // reached by the median, as a part of the peak
	OfBytes float64 `json:"of_peak_bytes,omitempty"` // caches make more than 1 of it
}

// Measured reports whether the row has figures.
func (r *Row) Measured() bool { return len(r.Seconds) > 0 || r.stated.Median > 0 }

// Figures sums the row up. A row without samples has none, unless they were
// read from results that state them.
func (r *Row) Figures() Figures {
	f := r.stated
	if len(r.Seconds) > 0 {
		f = Figures{
			Runs: len(r.Seconds), Median: Quantile(r.Seconds, 0.5), P10: Quantile(r.Seconds, 0.1), P90: Quantile(r.Seconds, 0.9),
			Min: slices.Min(r.Seconds),
		}
	}
	if f.Median > 0 {
		f.Rate, f.GFlops = float64(r.Bytes)/f.Median/1e9, r.Flops/f.Median/1e9
		f.Speed = r.Tokens / f.Median
		if r.Peak.Flops > 0 {
			f.OfFlops = r.Flops / f.Median / r.Peak.Flops
		}
		if r.Peak.Bytes > 0 {
			f.OfBytes = float64(r.Bytes) / f.Median / r.Peak.Bytes
		}
	}
	return f
}

// MarshalJSON adds the figures.
func (r *Row) MarshalJSON() ([]byte, error) {
	f := fields(*r)
	if f.Seconds == nil {
		f.Seconds = []float64{} // [], not null
	}
	return json.Marshal(rowRecord{f, r.Figures()})
}

// Quantile returns the q-quantile of the samples, 0 ≤ q ≤ 1, with linear interpolation between the two nearest. It
// returns NaN if there are no samples.
func Quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}
