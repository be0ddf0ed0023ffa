//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// EnvCommand is an environment variable: the milliseconds that a command buffer may take.
const EnvCommand = "LORAFUSE_METAL_COMMAND_MS"

// commandTime is the default limit of a command buffer. macOS stops buffers of seconds, and earlier if they delay the
// display.
const commandTime = 100 * time.Millisecond

// Rates of an unknown device: half of the published peaks of the slowest one, an M1 with 8 cores, since kernels do not
// reach peaks. Faster devices have smaller command buffers than possible until the first have been measured.
const (
	slowBytes  = 34e9   // per second
	slowFlops  = 1.3e12 // per second
	launchTime = 5e-6   // seconds that any kernel takes
)

// Limits of learning from measured times.
const (
	leastLearnt      = 1e-3 // seconds; shorter commands are mostly overhead
	fastest, slowest = 1.0 / 64, 8.0
	forgotten        = 0.25 // weight of a measured ratio that is less than the current one
)

// pace estimates how long launches take on the device. It starts with the rates of a slow device and multiplies them by
// the ratio of measured to estimated time of the commands that have ended. It is safe for concurrent use.
type pace struct {
	limit float64       // seconds of a command
	ratio atomic.Uint64 // bits of a float64
}

// newPace reads the limit from the environment.
func newPace() (*pace, error) {
	p := &pace{limit: commandTime.Seconds()}
	if text := os.Getenv(EnvCommand); text != "" {
		ms, err := strconv.ParseFloat(text, 64)
		if err != nil || !(ms > 0) || math.IsInf(ms, 0) {
			return nil, fmt.Errorf("%s: found %q, expected a number of milliseconds above 0", EnvCommand, text)
		}
		p.limit = ms / 1e3
	}
	p.set(1)
	return p, nil
}

func (p *pace) set(ratio float64) {
	p.ratio.Store(math.Float64bits(min(max(ratio, fastest), slowest)))
}

// estimate returns the seconds for work that takes a slow device the given seconds.
func (p *pace) estimate(slow float64) float64 { return slow * math.Float64frombits(p.ratio.Load()) }

// fits reports whether work that takes a slow device the given seconds may be one command.
func (p *pace) fits(slow float64) bool { return p.estimate(slow) <= p.limit }

// learn corrects the estimates by a measured command. Slower commands than expected count at once, faster ones
// gradually, so that mixed kernels are estimated like the slow ones among them.
func (p *pace) learn(slow float64, took time.Duration) {
	if p.estimate(slow) < leastLearnt || took <= 0 {
		return
	}
	ratio, now := took.Seconds()/slow, math.Float64frombits(p.ratio.Load())
	if ratio < now {
		ratio = now + forgotten*(ratio-now)
	}
	p.set(ratio)
}

// slowDown makes later commands smaller after one was stopped for its duration.
func (p *pace) slowDown() { p.set(2 * p.estimate(1)) }

// slowSeconds returns the seconds that a slow device takes for floating-point operations and bytes of memory traffic.
func slowSeconds(flops, bytes int) float64 {
	return max(float64(flops)/slowFlops, float64(bytes)/slowBytes)
}

// part is a box of the grid of a launch, in the memory layout of lfm_part.
type part struct{ first, groups [3]uint32 }

// count returns the number of threadgroups.
func (p part) count() uint64 {
	return uint64(p.groups[0]) * uint64(p.groups[1]) * uint64(p.groups[2])
}

// halves cuts the longest axis of a part with several threadgroups.
func (p part) halves() (a, b part) {
	axis := 0
	for i, n := range p.groups {
		if n > p.groups[axis] {
			axis = i
		}
	}
	a, b = p, p
	half := p.groups[axis] / 2
	a.groups[axis] = half
	b.first[axis] += half
	b.groups[axis] -= half
	return a, b
}

// divide calls each for parts of a grid, in order, that a slow device computes in the given seconds altogether. Each
// part fits into a command, or is a single threadgroup.
func (p *pace) divide(whole part, slow float64, each func(part part, slow float64) error) error {
	n := whole.count()
	if n <= 1 || p.fits(slow) {
		return each(whole, slow)
	}
	a, b := whole.halves()
	share := slow * float64(a.count()) / float64(n)
	if err := p.divide(a, share, each); err != nil {
		return err
	}
	return p.divide(b, slow-share, each)
}
