package single

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/model"
)

const (
	configFile = "config.json"
	classKey   = "_class_name"
)

// config returns the configuration: from the file at path, from a config.json next to the
// weights, or inferred from shapes.
func (f *file) config(path string) ([]byte, error) {
	asked := path != ""
	if !asked {
		path = filepath.Join(filepath.Dir(f.path), configFile)
	}
	raw, err := os.ReadFile(path)
	switch {
	case err == nil:
	case asked || !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("single: %w", err)
	default:
		return f.guess()
	}
	fields, err := model.ParseFields(raw)
	if err != nil {
		return nil, fmt.Errorf("single: %s: %w", path, err)
	}
	switch class := fields.String(classKey, ""); {
	case fields.Err() != nil:
		return nil, fmt.Errorf("single: %s: %w", path, fields.Err())
	case class == f.kind.class:
		return raw, nil
	case class == "" && !asked:
		return f.guess() // it belongs to something else
	default:
		return nil, fmt.Errorf("single: %s: %w: %s: found %q, expected %q: that is what %s has", path, model.ErrConfig, classKey, class, f.kind.class, f.path)
	}
}

// guess infers the configuration from names and shapes.
func (f *file) guess() ([]byte, error) {
	s := &shapes{f: f, keys: map[string]any{classKey: f.kind.class}}
	readers[f.kind.class](s)
	if s.err != nil {
		return nil, s.err
	}
	return json.Marshal(s.keys)
}

// shapes collects keys of a config.json. It keeps the first error.
type shapes struct {
	f    *file
	keys map[string]any
	err  error
}

// fail records that a key cannot be inferred.
func (s *shapes) fail(format string, args ...any) {
	if s.err == nil {
		s.err = s.f.fail(model.ErrConfig, "%s; put the config.json of diffusers beside the file, or name it", fmt.Sprintf(format, args...))
	}
}

// dim returns the length of an axis of a tensor, or 1 after an error.
func (s *shapes) dim(name string, axis int) int {
	p := s.f.names[name]
	switch {
	case p == nil:
		if s.err == nil {
			s.err = s.f.fail(ErrFile, "found no tensor %q", s.f.kind.key(name))
		}
	case axis >= len(p.shape) || p.shape[axis] < 1:
		if s.err == nil {
			s.err = s.f.fail(ErrFile, "tensor %q: found the shape %v", p.key, p.shape)
		}
	default:
		return p.shape[axis]
	}
	return 1
}

// count returns the number of blocks: the consecutive numbers for which a tensor exists.
func (s *shapes) count(pattern string) int {
	n := 0
	for s.f.has(fmt.Sprintf(pattern, n)) {
		n++
	}
	return n
}

// ratio returns a/b, which must be an integer.
func (s *shapes) ratio(key string, a, b int) int {
	if a%b != 0 {
		s.fail("%s: found %d of %d, expected a multiple", key, a, b)
	}
	return a / b
}

// axes sets the axes of the rotary embedding for a head size, since shapes do not determine
// them.
func (s *shapes) axes(key string, head int, known map[int][]int) {
	axes, ok := known[head]
	if !ok {
		s.fail("%s cannot be told for heads of %d from shapes", key, head)
	}
	s.keys[key] = axes
}
