//go:build unix

package gpucheck

import (
	"os/exec"
	"syscall"
)

// alone makes an interrupt reach the program and all its child processes; a benchmark then prints its results so far.
func alone(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGINT) }
}

// end kills the child processes that a program left running.
func end(c *exec.Cmd) {
	if c.Process != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
}
