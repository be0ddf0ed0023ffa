package lora

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/lorafuse/lorafuse/safetensors"
)

// UnusableError is the error of an adapter whose files are missing, malformed or unfit
// for the model. It does not cover other failures, such as disk errors.
type UnusableError struct {
	Err  error
	from source
}

// Error implements error.
func (e *UnusableError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnusableError) Unwrap() error { return e.Err }

// Reason returns the message of the error in a form for clients: it names the folder of
// the adapter by its path below the root, or by its last element.
func (e *UnusableError) Reason() string {
	name := e.from.dir
	if e.from.root == "" {
		name = filepath.Base(name)
	}
	return strings.ReplaceAll(e.Err.Error(), e.from.String(), name)
}

// unusable wraps an error of loading an adapter, if the adapter is to blame.
func unusable(from source, err error) error {
	if err == nil {
		return nil
	}
	for _, other := range []error{
		errUnknown, errRoot, ErrFull, ErrClosed, ErrName, ErrTaken, context.Canceled, context.DeadlineExceeded, safetensors.ErrFault,
		fs.ErrPermission, syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
	} {
		if errors.Is(err, other) {
			return err
		}
	}
	return &UnusableError{err, from}
}

// folderState caches the check of a folder of the root while its files are unchanged.
type folderState struct {
	files []fs.FileInfo
	err   error // why it cannot be used
}

// noteFolder records whether the adapter in a folder of the root is usable; files
// describes its files before it was loaded.
func (r *Registry) noteFolder(name string, files []fs.FileInfo, err error) {
	var u *UnusableError
	if err != nil && !errors.As(err, &u) {
		return
	}
	r.foldersMu.Lock()
	defer r.foldersMu.Unlock()
	if r.folders == nil {
		r.folders = map[string]folderState{}
	}
	r.folders[name] = folderState{files, err}
}

// lookFolder returns descriptions of the files of a folder of the root, or nil if there
// are none.
func (r *Registry) lookFolder(name string) []fs.FileInfo {
	root, err := os.OpenRoot(r.options.Root)
	if err != nil {
		return nil
	}
	defer root.Close()
	files, err := look(root.FS(), name)
	if err != nil {
		return nil
	}
	return files
}

// Folders returns the folders of Root with adapters that can be loaded by their name, which
// no adapter and no alias has yet. It checks their configuration and the header of their
// weights, once; the tensors are checked when the adapter is loaded. An adapter that could
// not be loaded is left out until its files change.
func (r *Registry) Folders() map[string]string {
	usable, _ := r.scan(false)
	return usable
}

// Skipped returns the folders of Root with adapter files that [Registry.Folders] leaves
// out, with the reason. These are broken adapters, folders whose name is not a valid
// adapter name, and nested folders, which only LoadBelow loads.
func (r *Registry) Skipped() map[string]error {
	_, skipped := r.scan(true)
	return skipped
}

// scan examines the folders of Root, and with deeper also the folders in them.
func (r *Registry) scan(deeper bool) (usable map[string]string, skipped map[string]error) {
	t := r.table.Load()
	if r.options.Root == "" || t.closed {
		return nil, nil
	}
	root, err := os.OpenRoot(r.options.Root)
	if err != nil {
		return nil, nil
	}
	defer root.Close()
	files := root.FS()
	entries, _ := fs.ReadDir(files, ".")
	usable, skipped = map[string]string{}, map[string]error{}
	present := map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		present[name] = true
		found, err := look(files, name)
		switch {
		case err != nil && noConfig(files, name):
			if deeper {
				scanDeeper(files, name, skipped)
			}
		case CheckName(name) != nil:
			skipped[name] = CheckName(name)
		case t.names[name] != nil || t.aliases[name] != (reference{}):
		case err != nil:
			skipped[name] = err
		default:
			if err := r.checkFolder(files, name, found); err != nil {
				skipped[name] = err
				break
			}
			usable[name] = filepath.Join(r.options.Root, name)
		}
	}
	r.foldersMu.Lock()
	defer r.foldersMu.Unlock()
	maps.DeleteFunc(r.folders, func(name string, _ folderState) bool { return !present[name] })
	return usable, skipped
}

// noConfig reports whether a folder has no adapter's configuration.
func noConfig(files fs.FS, name string) bool {
	_, err := fs.Lstat(files, path.Join(name, ConfigFile))
	return err != nil
}

// scanDeeper records the adapters below a folder. It stops early in large trees.
func scanDeeper(files fs.FS, folder string, skipped map[string]error) {
	left := 10_000
	_ = fs.WalkDir(files, folder, func(name string, e fs.DirEntry, err error) error {
		left--
		switch {
		case left < 0:
			return fs.SkipAll
		case err != nil || !e.IsDir():
			return nil // unreadable folders are not expected to be listed
		case strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case name != folder && !noConfig(files, name):
			skipped[name] = errDeeper
			return fs.SkipDir
		}
		return nil
	})
}

var errDeeper = errors.New("is not directly in the folder of adapters; load_lora_adapter loads it")

// checkFolder checks the files of an adapter without reading its tensors.
func (r *Registry) checkFolder(files fs.FS, name string, found []fs.FileInfo) error {
	r.foldersMu.Lock()
	known, ok := r.folders[name]
	r.foldersMu.Unlock()
	if ok && slices.EqualFunc(known.files, found, same) {
		return known.err
	}
	err := r.checkFiles(files, name)
	if err != nil {
		err = unusable(source{root: r.options.Root, dir: name}, err)
	}
	r.noteFolder(name, found, err)
	return err
}

// checkFiles checks the configuration of an adapter against the model, and the header of
// its weights.
func (r *Registry) checkFiles(files fs.FS, name string) error {
	text, err := fs.ReadFile(files, path.Join(name, ConfigFile))
	if err != nil {
		return err
	}
	c, err := ParseConfig(text)
	if err != nil {
		return err
	}
	f, err := files.Open(path.Join(name, WeightsFile))
	if err != nil {
		return err
	}
	defer f.Close()
	var keys []string
	if file, ok := f.(*os.File); ok { // of a root every file is one
		info, err := file.Stat()
		if err != nil {
			return err
		}
		weights, err := safetensors.OpenReaderAt(file, info.Size(), name+"/"+WeightsFile)
		if err != nil {
			return fmt.Errorf("lora: adapter %s: %w", name, err)
		}
		keys = weights.Names()
	}
	_, err = NewPlacement(c, ModelOf(r.modelType, r.modules).SpelledAs(keys))
	return err
}
