//go:build unix

package gpucheck

import (
	"os/exec"
	"syscall"
)

// alone has a program be ended with all that it has started.
func alone(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}
