package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// profiler records a CPU profile of the Go code and the device's launches by operation. A nil profiler does nothing.
type profiler struct {
	app     *app
	dir     string
	cpu     *os.File
	ops     *backend.Profile
	backend string
	options backend.Options
}

// The files of a profile.
const (
	cpuProfile = "cpu.pprof"
	opsTable   = "ops.txt"
	opsJSON    = "ops.json"
)

const profileUsage = "folder for a profile: cpu.pprof for go tool pprof, ops.txt and ops.json with the time of every operation"

// profiler starts a profile in dir of the device name, opened with o and the profile that launches returns. An empty
// dir means no profile.
func (a *app) profiler(dir, name string, o backend.Options) (*profiler, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	f, err := os.Create(filepath.Join(dir, cpuProfile))
	if err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("--profile: %w", err)
	}
	return &profiler{app: a, dir: dir, cpu: f, ops: &backend.Profile{}, backend: name, options: o}, nil
}

// launches returns the profile that the device records its costs in, or nil without a profile.
func (p *profiler) launches() *backend.Profile {
	if p == nil {
		return nil
	}
	return p.ops
}

// profileReport is the content of ops.json.
type profileReport struct {
	Device backend.Info  `json:"device"`
	Peak   backend.Peak  `json:"peak"`
	Time   time.Duration `json:"nanoseconds"` // of all launches
	Ops    []profiledOp  `json:"ops"`
}

type profiledOp struct {
	backend.ProfileRow
	Share       float64 `json:"share"`         // of the time
	OfFlopPeak  float64 `json:"of_flop_peak"`  // fraction of the device's peak that was reached
	OfBytesPeak float64 `json:"of_bytes_peak"` // caches make more than 1 of it
}

// abort discards a profile. It may follow finish.
func (p *profiler) abort() {
	if p != nil {
		pprof.StopCPUProfile()
		p.cpu.Close()
	}
}

// finish ends the profile, measures the device's peak and writes the files.
func (p *profiler) finish() error {
	if p == nil {
		return nil
	}
	pprof.StopCPUProfile()
	if err := p.cpu.Close(); err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	r, err := p.report()
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	if err := fsatomic.WriteFile(filepath.Join(p.dir, opsJSON), append(text, '\n')); err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	var table bytes.Buffer
	out := output{w: &table}
	out.table(r.table())
	if err := fsatomic.WriteFile(filepath.Join(p.dir, opsTable), table.Bytes()); err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	p.app.note("profile  %s in operations: %s, %s, %s in %s", seconds(r.Time), opsTable, opsJSON, cpuProfile, p.dir)
	return nil
}

func (p *profiler) report() (*profileReport, error) {
	dev, err := backend.Open(p.backend, p.options)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	r := &profileReport{Device: dev.Info()}
	r.Peak = r.Device.Rated
	if d, ok := dev.(backend.Meter); ok {
		if r.Peak, err = d.Peak(); err != nil {
			return nil, err
		}
	}
	rows := p.ops.Rows()
	for _, row := range rows {
		r.Time += row.Time
	}
	ratio := func(amount int, of time.Duration, peak float64) float64 {
		if of <= 0 || peak <= 0 {
			return 0
		}
		return float64(amount) / of.Seconds() / peak
	}
	for _, row := range rows {
		r.Ops = append(r.Ops, profiledOp{
			ProfileRow: row, Share: float64(row.Time) / float64(max(1, r.Time)),
			OfFlopPeak: ratio(row.Flops, row.Time, r.Peak.FlopsPerSecond), OfBytesPeak: ratio(row.Bytes, row.Time, r.Peak.BytesPerSecond),
		})
	}
	return r, nil
}

// table returns the sums by operation, followed by all rows.
func (r *profileReport) table() [][]string {
	rows := [][]string{
		{"device", fmt.Sprintf("%s %s, %s", r.Device.Backend, r.Device.Name, r.Device.Detail)},
		{"peak", fmt.Sprintf("%.1f GFLOP/s, %.1f GB/s", r.Peak.FlopsPerSecond/1e9, r.Peak.BytesPerSecond/1e9)},
		{},
		{"OP", "CALLS", "TIME", "SHARE", "GFLOP/s", "OF PEAK", "GB/s", "OF PEAK", "SHAPES"},
	}
	for _, o := range r.Ops {
		s := max(o.Time.Seconds(), 1e-9)
		rows = append(rows, []string{o.Op, fmt.Sprint(o.Calls), seconds(o.Time), shareOf(o.Share),
			fmt.Sprintf("%.1f", float64(o.Flops)/s/1e9), shareOf(o.OfFlopPeak),
			fmt.Sprintf("%.1f", float64(o.Bytes)/s/1e9), shareOf(o.OfBytesPeak), o.Shapes})
	}
	return rows
}

// shareOf writes a share as percent.
func shareOf(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }
