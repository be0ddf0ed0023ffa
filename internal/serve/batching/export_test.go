package batching

import "github.com/lorafuse/lorafuse/lora"

// Closing tells whether Close was called.
func (e *Engine) Closing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed != nil
}

// SlotBytes tells how much memory of the device a version has at the moment, also when it
// has been dropped.
func (e *Engine) SlotBytes(v *lora.Version) func() int {
	s := e.machine.slotOf(v)
	return func() int {
		e.machine.mu.Lock()
		defer e.machine.mu.Unlock()
		return s.Bytes()
	}
}
