package fsatomic

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ReplaceDir lets fill write a folder and then puts it in the place of path,
// replacing all that was there. fill gets the name of an empty folder beside
// path; where it returns an error, path stays as it was and ReplaceDir returns
// that error. path must be a folder or missing; its parent must exist. A
// symbolic link is followed.
//
// On Linux and macOS the exchange is one step of the file system. Elsewhere
// the old folder is moved aside first: a process killed between the two
// renames leaves it under another name, and [Sweep] of the parent folder
// brings it back.
func ReplaceDir(path string, fill func(dir string) error) error {
	final, err := follow(filepath.Clean(path))
	if err != nil {
		return err
	}
	old, err := os.Lstat(final)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !old.IsDir():
		return &fs.PathError{Op: "replace folder", Path: final, Err: syscall.ENOTDIR}
	}
	temp, mark, err := createTempDir(final)
	if err != nil {
		return naming(final, err)
	}
	defer os.RemoveAll(temp) // nothing, or after an exchange the old folder
	defer mark.Close()
	if err := fill(temp); err != nil {
		return err
	}
	if old != nil {
		if err := os.Chmod(temp, old.Mode().Perm()); err != nil {
			return err
		}
	}
	if err := syncTree(temp); err != nil {
		return err
	}
	if !canRemoveOpen {
		mark.Close() // nor rename
	}
	if err := moveInto(temp, final, old != nil); err != nil {
		return err
	}
	return syncDir(filepath.Dir(final))
}

// ReplaceFile is [ReplaceDir] for one file: fill writes a file of the name that
// it gets, whose folder is there and empty, and may read it back; then the file
// takes the place of path. It is [Create] for writers that want a name, and for
// what must be checked before it replaces something.
func ReplaceFile(path string, fill func(name string) error) error {
	final, err := follow(path)
	if err != nil {
		return err
	}
	mode, err := replaceable(final)
	if err != nil {
		return err
	}
	folder, mark, err := createTempDir(final)
	if err != nil {
		return naming(final, err)
	}
	defer os.RemoveAll(folder)
	defer mark.Close()
	name := filepath.Join(folder, filepath.Base(final))
	if err := fill(name); err != nil {
		return err
	}
	if mode != 0 {
		if err := os.Chmod(name, mode); err != nil {
			return naming(final, err)
		}
	}
	if err := syncFile(name); err != nil {
		return naming(final, err)
	}
	if err := os.Rename(name, final); err != nil {
		return naming(final, err)
	}
	return syncDir(filepath.Dir(final))
}

// RemoveDir removes a folder with all that is in it. It loses its name first:
// a kill on the way leaves no half of it, but what [Sweep] removes.
func RemoveDir(path string) error {
	gone := tempName(tempPrefix, path)
	if err := os.Rename(path, gone); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

func moveInto(temp, final string, replace bool) error {
	if !replace {
		return os.Rename(temp, final)
	}
	err := exchange(temp, final)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return stepAside(temp, final)
}

// stepAside is the exchange in two renames. Before the second one the parent
// must know of the first on disk, or after a power failure both could be lost.
func stepAside(temp, final string) error {
	aside := tempName(oldPrefix, final)
	if err := os.Rename(final, aside); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(final)); err != nil {
		return errors.Join(err, os.Rename(aside, final))
	}
	if err := os.Rename(temp, final); err != nil {
		return errors.Join(err, os.Rename(aside, final))
	}
	if err := syncDir(filepath.Dir(final)); err != nil {
		return err
	}
	return os.RemoveAll(aside)
}

// syncTree brings every file and folder under root to the disk.
func syncTree(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return syncDir(path)
		case !d.Type().IsRegular():
			return nil
		}
		return syncFile(path)
	})
}
