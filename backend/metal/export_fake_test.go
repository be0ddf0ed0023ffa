//go:build cgo && metal && metalfake

package metal

// FakeObjects counts what the stand-in for Metal has made and not been given back.
func FakeObjects() int { return fakeObjects() }

// FakeMemory is the memory of its buffers: its own, and that of mapped files.
func FakeMemory() (own, borrowed int64) { return fakeMemory() }

// FakeCommands counts the command buffers of the stand-in since the last call.
func FakeCommands() fakeWork { return fakeCommands() }
