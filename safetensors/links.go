package safetensors

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// followLinks returns the path of the file that path leads to, and what is there
// now, nil for nothing. A link to a file that does not exist yet is followed.
func followLinks(path string) (string, fs.FileInfo, error) {
	const most = 40 // as Linux has it
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
			// A link is relative to the folder that really holds it.
			dir, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return "", nil, err
			}
			// Not Join, which would take a ".." after a link for its inverse.
			link = dir + string(filepath.Separator) + link
		}
		path = link
	}
	return "", nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("too many links")}
}
