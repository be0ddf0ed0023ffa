package image

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Command is a program of the image, in a chroot and as the image's user, with
// nothing of this machine's environment. It needs the rights to change both.
// Without arguments it is what the image starts with.
func (m *Image) Command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	uid, gid, _ := strings.Cut(m.User, ":")
	u, err := strconv.ParseUint(uid, 10, 32)
	g, err2 := strconv.ParseUint(gid, 10, 32)
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("USER %s: %w: expected two numbers, since the image has no list of users", m.User, err)
	}
	if args == nil {
		args = slices.Concat(m.Entrypoint, m.Cmd)
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("%w: nothing to start", ErrSyntax)
	}
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir, c.Env = m.WorkDir, append([]string{}, m.Env...) // a nil Env would be this process's
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: m.Root, Credential: &syscall.Credential{Uid: uint32(u), Gid: uint32(g)}}
	return c, nil
}

// libraryFolders are where this machine's dynamic linker looks.
var libraryFolders = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64"}

// AddLibraries puts what a program or library of the image is linked with into
// it, from this machine, and gives the names: of the base image, which is not
// there, it stands for the part that the program uses.
func (m *Image) AddLibraries(name string) ([]string, error) {
	f, err := elf.Open(m.path(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		raw := make([]byte, p.Filesz)
		if _, err := p.ReadAt(raw, 0); err != nil {
			return nil, err
		}
		interpreter := strings.TrimRight(string(raw), "\x00")
		if err := copyFile(interpreter, m.path(interpreter), owner{}); err != nil {
			return nil, err
		}
	}
	for _, lib := range needed {
		if err := m.addLibrary(lib); err != nil {
			return nil, err
		}
	}
	return needed, nil
}

func (m *Image) addLibrary(name string) error {
	for _, dir := range libraryFolders {
		from := filepath.Join(dir, name)
		to := m.path(from)
		if _, err := os.Stat(from); err != nil {
			continue
		}
		if _, err := os.Stat(to); err == nil {
			return nil
		}
		if err := copyFile(from, to, owner{}); err != nil {
			return err
		}
		_, err := m.AddLibraries(from)
		return err
	}
	return fmt.Errorf("library %s: %w on this machine", name, fs.ErrNotExist)
}
