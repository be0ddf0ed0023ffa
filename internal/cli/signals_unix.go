//go:build unix

package cli

import (
	"os/signal"
	"syscall"
)

// ignoreFileSizeSignal lets a write beyond the file size limit of the process
// (ulimit -f) fail with an error like a full disk does, instead of ending the
// program with a stack dump.
func ignoreFileSizeSignal() { signal.Ignore(syscall.SIGXFSZ) }
