//go:build unix

package gpucheck

import (
	"os/exec"
	"syscall"
)

// alone has a program be interrupted with all that it has started: a benchmark
// then prints what it has measured.
func alone(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGINT) }
}

// end ends what a program that has ended has left behind.
func end(c *exec.Cmd) {
	if c.Process != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
}
