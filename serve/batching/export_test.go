package batching

import "github.com/lorafuse/lorafuse/lora"

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
