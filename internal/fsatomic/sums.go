package fsatomic

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// Sums returns checksums of files in a folder, by name. Compare them later to detect
// changes to the files.
func Sums(dir string, names ...string) (map[string]string, error) {
	sums := map[string]string{}
	for _, name := range names {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
		_, err = io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		sums[name] = fmt.Sprintf("crc32c %08x", h.Sum32())
	}
	return sums, nil
}
