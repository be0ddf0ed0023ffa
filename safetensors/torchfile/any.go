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

// Source describes the file that was opened.
type Source struct {
	Path     string // the file, or the index of shards
	Format   string // "safetensors", "torch zip" or "torch legacy"
	Fallback bool   // a file other than the requested one
	Why      string // human-readable reason, if any
}

// Note returns a line with the reason for the choice of the file, or "".
func (s Source) Note() string {
	if s.Why == "" {
		return ""
	}
	return fmt.Sprintf("reading %s: %s", s.Path, s.Why)
}

const safetensorsExtension = ".safetensors"

// extensions lists the extensions of files written by torch.save, in the order
// in which they are tried.
var extensions = []string{".pt", ".pth", ".bin", ".ckpt"}

// OpenAny opens a file of tensors of either format.
//
// If path ends in .safetensors and that file exists, OpenAny opens it, even if
// it is invalid. Only if it does not exist, not even as a broken link, OpenAny
// opens the first existing file with the same stem and the extension .pt, .pth,
// .bin or .ckpt, and reports this in the Source. If none of them exists either,
// the error is fs.ErrNotExist.
//
// A path with another extension is opened itself; the format is detected from
// the content.
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

// OpenFirst opens the safetensors file at path. Only if it does not exist, it
// opens the first existing fallback, with its format detected from the content.
// An existing file is never skipped: a corrupt or unreadable file is an error.
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

// exists reports whether path exists. A dangling link counts as existing, so
// later candidates are not tried.
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

// openContent opens a file in the format detected from its content, whatever
// its name.
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
