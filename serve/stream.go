package serve

import (
	"net/http"
)

// events are what a client gets of an answer that is under way, as server-sent events.
// Nothing is written before the first: what fails earlier is answered with its status.
type events struct{ call *call }

// send writes an event.
func (e events) send(v any) error {
	b, err := marshal(v)
	if err != nil {
		return err
	}
	return e.write("data: " + string(b) + "\n\n")
}

// ping tells a client, and what lies between, that its answer is still to come.
func (e events) ping() error { return e.write(": ping\n\n") }

// end is the last event.
func (e events) end() error { return e.write("data: [DONE]\n\n") }

// fail is the last event of an answer that has begun and cannot be ended; one that has
// not begun is failed as any other.
func (e events) fail(err error) error {
	if err == nil || e.call.status == 0 {
		return err
	}
	f := failureOf(err)
	e.call.failed(f)
	if f.status == statusGone {
		return nil
	}
	if err := e.send(f); err != nil {
		return nil // the client has gone
	}
	return e.end()
}

func (e events) write(s string) error {
	c := e.call
	if c.status == 0 {
		h := c.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // proxies are not to wait for more
		c.WriteHeader(http.StatusOK)
	}
	if _, err := c.Write([]byte(s)); err != nil {
		return gone{err}
	}
	if err := c.control.Flush(); err != nil {
		return gone{err}
	}
	return nil
}

// gone is the error of a client that is not there any more, or takes nothing.
type gone struct{ error }
