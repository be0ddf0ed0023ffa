package safetensors

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// followLinks resolves symbolic links and returns the path of the target and its
// FileInfo, nil if the target does not exist.
func followLinks(path string) (string, fs.FileInfo, error) {
	const most = 40 // the limit of Linux
	for range most {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return path, nil, nil
		case err != nil:
			return "", nil, err
		case info.Mode()&fs.ModeSymlink == 0:
			return path, info, nil
		}
		link, err := os.Readlink(path)
		if err != nil {
			return "", nil, err
		}
		if !filepath.IsAbs(link) {
			// A link is relative to the folder that actually contains it.
			dir, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return "", nil, err
			}
			// filepath.Join would cancel a ".." against a preceding link.
			link = dir + string(filepath.Separator) + link
		}
		path = link
	}
	return "", nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("too many links")}
}
