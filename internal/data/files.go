package data

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// stat describes a file, in Files if there are some.
func (o *Options) stat(name string) (fs.FileInfo, error) {
	if o.Files != nil {
		return fs.Stat(o.Files, name)
	}
	return os.Stat(name)
}

// expand returns the files of an entry, which may be a folder or a pattern, sorted by name.
func (o *Options) expand(name string) ([]string, error) {
	info, err := o.stat(name)
	switch {
	case err == nil && info.IsDir():
		return o.folder(name)
	case err == nil:
		return []string{name}, nil
	case !strings.ContainsAny(name, "*?["):
		if o.Resolve != nil {
			if files, failed := o.Resolve(name); len(files) > 0 || failed != nil {
				return files, failed
			}
		}
		return nil, err
	case strings.Contains(name, "**"):
		return nil, at(name, 0, problem(ErrOption, "** is not supported: give a folder, whose subfolders are read too"))
	}
	glob := filepath.Glob
	if o.Files != nil {
		glob = func(pattern string) ([]string, error) { return fs.Glob(o.Files, pattern) }
	}
	names, err := glob(name)
	if err != nil {
		return nil, at(name, 0, problem(ErrOption, "not a pattern: %v", err))
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		info, err := o.stat(name)
		return err == nil && info.IsDir()
	})
	if len(names) == 0 {
		return nil, at(name, 0, fmt.Errorf("no file matches this pattern: %w", fs.ErrNotExist))
	}
	return names, nil
}

// splits matches the name of a split of a dataset in the name of a file or folder.
var splits = regexp.MustCompile(`(?i)(?:^|[-_./])(train|test|validation|valid|val|dev|eval)(?:[-_./0-9]|$)`)

// folder returns the files of rows in a folder and its subfolders or, if it has none, its text files. It returns an error
// if their names name several splits of a dataset.
func (o *Options) folder(dir string) ([]string, error) {
	files := o.Files
	root := dir
	if files == nil {
		files, root = os.DirFS(dir), "."
	}
	var rows, texts []string
	found := map[string]string{} // split → file
	err := fs.WalkDir(files, root, func(name string, e fs.DirEntry, err error) error {
		base := path.Base(name)
		switch hidden := strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_"); {
		case err != nil:
			return err
		case hidden && name != root && e.IsDir():
			return fs.SkipDir
		case hidden || e.IsDir():
			return nil
		}
		in := name
		if o.Files == nil {
			in = filepath.Join(dir, filepath.FromSlash(name))
		}
		switch end := ending(base); {
		case otherEndings[end] == FormatText:
			texts = append(texts, in)
			return nil
		case otherEndings[end] == "" && !slices.Contains(endings(), end):
			return nil
		}
		rows = append(rows, in)
		if m := splits.FindStringSubmatch(strings.TrimPrefix(name, root+"/")); m != nil {
			split := strings.ToLower(m[1])
			if split == "val" || split == "valid" || split == "dev" {
				split = "validation"
			}
			found[split] = in
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		rows = texts
	}
	if len(rows) == 0 {
		return nil, at(dir, 0, problem(ErrEmpty, "the folder has no data files (%s)", strings.Join(endings(), ", ")))
	}
	if names := slices.Sorted(maps.Keys(found)); len(names) > 1 {
		return nil, at(dir, 0, problem(ErrMixed, "the folder has the splits %s, expected one: give files or a pattern, such as %s",
			strings.Join(names, ", "), filepath.Join(dir, "train*")))
	}
	slices.Sort(rows)
	return rows, nil
}

// IsFile reports whether a name ends like that of a data file.
func IsFile(name string) bool { return slices.Contains(endings(), ending(name)) }
