package serve

import (
	"net/http"

	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// events writes the answer to a request as server-sent events. The status is sent with the first
// event, so an error before it is answered with its own status.
type events struct{ call *web.Call }

// send writes an event.
func (e events) send(v any) error {
	b, err := web.Marshal(v)
	if err != nil {
		return err
	}
	return e.write("data: " + string(b) + "\n\n")
}

// named writes an event with a name.
func (e events) named(name string, v any) error {
	b, err := web.Marshal(v)
	if err != nil {
		return err
	}
	return e.write("event: " + name + "\ndata: " + string(b) + "\n\n")
}

// ping writes a comment that keeps the connection open through proxies.
func (e events) ping() error { return e.write(": ping\n\n") }

// end writes the last event.
func (e events) end() error { return e.write("data: [DONE]\n\n") }

// fail writes err as the last event of an answer. If no event was written yet, it returns err to be
// answered as usual.
func (e events) fail(err error) error {
	if err == nil || e.call.Status == 0 {
		return err
	}
	f := e.call.Failed(err)
	if f.Status == web.StatusGone {
		return nil
	}
	if err := e.send(shape(f, http.Header{})); err != nil {
		return nil // the client has disconnected
	}
	return e.end()
}

func (e events) write(s string) error {
	c := e.call
	if c.Status == 0 {
		h := c.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // tells proxies not to buffer
		c.WriteHeader(http.StatusOK)
	}
	if _, err := c.Write([]byte(s)); err != nil {
		return err
	}
	return c.Flush()
}
