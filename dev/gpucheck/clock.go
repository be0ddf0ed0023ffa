package gpucheck

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// watchClock polls nvidia-smi until stop is called, since a figure is of little value without the clock rate at which
// it was measured.
func (x *Result) watchClock() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan *Clock)
	go func() {
		var c *Clock
		for ctx.Err() == nil {
			out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader,nounits").Output()
			if err != nil {
				break
			}
			c = c.with(string(out))
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		ended <- c
	}()
	return func() {
		cancel()
		x.Clock = <-ended
	}
}

// with adds the values reported for the first GPU.
func (c *Clock) with(said string) *Clock {
	var mhz, watts, celsius float64
	if _, err := fmt.Sscan(strings.ReplaceAll(said, ",", " "), &mhz, &watts, &celsius); err != nil {
		return c
	}
	if c == nil {
		return &Clock{mhz, mhz, watts, celsius}
	}
	return &Clock{min(c.LeastMHz, mhz), max(c.MostMHz, mhz), max(c.Watts, watts), max(c.Celsius, celsius)}
}
