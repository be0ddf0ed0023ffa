package data

import (
	"io/fs"
	"os"
)

// stat describes a file, in Files if there are some.
func (o *Options) stat(name string) (fs.FileInfo, error) {
	if o.Files != nil {
		return fs.Stat(o.Files, name)
	}
	return os.Stat(name)
}
