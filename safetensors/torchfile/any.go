package torchfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/safetensors"
)

// Source says what was opened.
type Source struct {
	Path     string // the file, or the index of shards
	Format   string // "safetensors", "torch zip" or "torch legacy"
	Fallback bool   // another file than the one asked for
	Why      string // the reason, where there is something to say; for people
}

const safetensorsExtension = ".safetensors"

// extensions of files that torch.save writes, in the order in which they are
// looked for.
var extensions = []string{".pt", ".pth", ".bin", ".ckpt"}

// OpenAny opens a file of tensors of either format.
//
// Where path ends in .safetensors, that file is opened if it exists, whatever is
// wrong with it. Only if there is none, not even a broken link, the first of the
// files with the same stem and the extension .pt, .pth, .bin or .ckpt takes its
// place, and the Source says so. Where there is none of these either, the error
// is fs.ErrNotExist.
//
// A path with another ending is opened itself, as what its content shows.
func OpenAny(path string) (*safetensors.File, Source, error) {
	stem, ok := strings.CutSuffix(path, safetensorsExtension)
	if !ok {
		return openContent(path)
	}
	var fallbacks []string
	for _, ext := range extensions {
		fallbacks = append(fallbacks, stem+ext)
	}
	return OpenFirst(path, fallbacks...)
}

// OpenFirst opens the safetensors file at path, or, only if there is none, the
// first of the fallbacks that exists, as what its content shows. A file that
// exists is never passed over: one that is corrupt or may not be read is an
// error.
func OpenFirst(path string, fallbacks ...string) (*safetensors.File, Source, error) {
	there, err := exists(path)
	if err != nil {
		return nil, Source{}, err
	}
	if there {
		f, err := safetensors.Open(path)
		if err != nil {
			return nil, Source{}, err
		}
		return f, Source{Path: path, Format: formatSafetensors}, nil
	}
	for i, fallback := range fallbacks {
		there, err := exists(fallback)
		if err != nil {
			return nil, Source{}, err
		}
		if !there {
			continue
		}
		f, s, err := openContent(fallback)
		if err != nil {
			return nil, Source{}, err
		}
		s.Fallback = true
		s.Why = joinWhy(filepath.Base(path)+" does not exist", s.Why)
		if others := existing(fallbacks[i+1:]); len(others) > 0 {
			s.Why = joinWhy(s.Why, "not looked at: "+strings.Join(others, ", "))
		}
		return f, s, nil
	}
	names := []string{path}
	for _, fallback := range fallbacks {
		names = append(names, filepath.Base(fallback))
	}
	return nil, Source{}, fmt.Errorf("torchfile: none of %s: %w", strings.Join(names, ", "), fs.ErrNotExist)
}

// exists tells whether there is something at path. A link that leads nowhere is
// something, and no reason to look on.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, fmt.Errorf("torchfile: %w", err)
}

func existing(paths []string) (names []string) {
	for _, path := range paths {
		if there, err := exists(path); there || err != nil {
			names = append(names, filepath.Base(path))
		}
	}
	return names
}

func joinWhy(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// openContent opens a file as what it is, whatever its name.
func openContent(path string) (*safetensors.File, Source, error) {
	in, err := openInput(path)
	if err != nil {
		return nil, Source{}, err
	}
	defer in.Close()
	format, err := sniff(in, in.size)
	if err != nil {
		return nil, Source{}, withPath(err, path)
	}
	s := Source{Path: path, Format: format}
	var f *safetensors.File
	if format == formatSafetensors {
		if slices.Contains(extensions, filepath.Ext(path)) {
			s.Why = filepath.Base(path) + " is a safetensors file by its content"
		}
		f, err = safetensors.Open(path)
	} else {
		f, err = open(in)
	}
	if err != nil {
		return nil, Source{}, err
	}
	return f, s, nil
}
