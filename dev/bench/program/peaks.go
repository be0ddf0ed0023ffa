package program

import (
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
)

// peaksTitle is the title of a report of peaks.
const peaksTitle = "peaks"

// Peaks measures the peak rates of a device for suites that run later: see [ReadPeaks]. Its rows give rates per
// second.
func Peaks(name string) (_ *bench.Report, err error) {
	m, err := Open(name, 0)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	r := m.Report(peaksTitle)
	copied := 0.0
	for p, dev := range m.devices {
		meter, ok := dev.(backend.Meter)
		if !ok {
			return nil, fmt.Errorf("peaks: %w: the device does not measure its own", backend.ErrUnsupported)
		}
		peak, err := meter.Peak()
		if err != nil {
			return nil, err
		}
		copied = max(copied, peak.CopiedPerSecond)
		r.Rows = append(r.Rows, &bench.Row{
			Group: "Peaks", Program: ours, Name: backend.Precision(p).String(), Input: "products, and reading memory", Seconds: []float64{1},
			Flops: peak.FlopsPerSecond, Bytes: int64(peak.BytesPerSecond), Peak: bench.Peak{Flops: peak.FlopsPerSecond, Bytes: peak.BytesPerSecond},
		})
	}
	if copied > 0 {
		r.Rows = append(r.Rows, &bench.Row{Group: "Peaks", Program: ours, Name: "copies", Input: "from pinned memory", Seconds: []float64{1}, Bytes: int64(copied)})
	}
	return r, nil
}

// ours is the program name of lorafuse's rows.
const ours = "lorafuse"

// ReadPeaks reads a report of [Peaks]. The keys are names of precisions.
func ReadPeaks(file string) (map[string]bench.Peak, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	reports, err := bench.ReadResults(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	peaks := map[string]bench.Peak{}
	for _, row := range reports[len(reports)-1].Rows {
		if row.Peak != (bench.Peak{}) {
			peaks[row.Name] = row.Peak
		}
	}
	if len(peaks) == 0 {
		return nil, fmt.Errorf("%s: %w: found no peaks in it", file, bench.ErrResults)
	}
	return peaks, nil
}
