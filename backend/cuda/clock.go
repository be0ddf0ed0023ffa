//go:build cuda && linux

package cuda

import (
	"time"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
)

// clock measures work on the device's stream.
type clock struct {
	dev        *Device
	begin, end cu.Event
}

func (d *Device) newClock() (c *clock, err error) {
	c = &clock{dev: d}
	for _, e := range []*cu.Event{&c.begin, &c.end} {
		if *e, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			c.free()
			return nil, d.Failed(driver.Of(err))
		}
	}
	return c, nil
}

func (c *clock) free() {
	for _, e := range []*cu.Event{&c.begin, &c.end} {
		if *e != (cu.Event{}) {
			_ = cu.DestroyEvent(e)
		}
	}
}

// time enqueues work, waits for it, and returns its duration on the device.
func (c *clock) time(work func() error) (time.Duration, error) {
	s := c.dev.compute.Stream
	if err := c.begin.Record(s); err != nil {
		return 0, c.dev.Failed(driver.Of(err))
	}
	if err := work(); err != nil {
		return 0, err
	}
	err := driver.Of(c.end.Record(s))
	if err == nil {
		err = driver.Wait(c.end)
	}
	var ms float64
	if err == nil {
		ms, err = c.begin.Elapsed(c.end)
	}
	if err != nil {
		return 0, c.dev.Failed(driver.Of(err))
	}
	return time.Duration(ms * float64(time.Millisecond)), nil
}
