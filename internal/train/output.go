package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// ErrRunning is wrapped if another run is using the output folder.
var ErrRunning = errors.New("another run is under way")

// lockFile is the file in the output folder that a run locks while it uses the folder;
// it names the owner.
const lockFile = ".lorafuse.lock"

// makeOutput makes the output folder and sees that it can be written to. With
// lock it is kept from other runs, which would write the same files.
func (r *Run) makeOutput(lock bool) error {
	dir := r.cfg.OutputDir
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("train: output_dir: %w", err)
	}
	if lock {
		if err := r.lockOutput(); err != nil {
			return err
		}
	}
	if err := fsatomic.Sweep(dir); err != nil {
		return fmt.Errorf("train: output_dir: %w", err)
	}
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return fmt.Errorf("train: output_dir: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func (r *Run) lockOutput() (err error) {
	dir := r.cfg.OutputDir
	r.lock, err = fsatomic.TryLock(filepath.Join(dir, lockFile))
	if held, ok := errors.AsType[*fsatomic.LockedError](err); ok {
		return fmt.Errorf("train: output_dir %s: %w: %v; wait for its end, or choose another output_dir", dir, ErrRunning, held.Owner)
	}
	if errors.Is(err, fsatomic.ErrLockUnsupported) {
		r.observer.note("note     output_dir is on a file system without locks: nothing keeps a second run out of it")
		return nil
	}
	if err != nil {
		return fmt.Errorf("train: output_dir: %w", err)
	}
	return nil
}
