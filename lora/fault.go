package lora

import (
	"runtime/debug"

	"github.com/lorafuse/lorafuse/safetensors"
)

// reading runs read, which accesses tensors in the mapped file. If the file was
// truncated, reading returns safetensors.ErrFault.
func reading(read func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		if r := recover(); r != nil {
			if err = safetensors.Fault(r); err == nil {
				panic(r) // of something else
			}
		}
	}()
	return read()
}
