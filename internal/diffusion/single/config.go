package single

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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
	case class == f.kind.Class:
		return raw, nil
	case class == "" && !asked:
		return f.guess() // it belongs to something else
	default:
		return nil, fmt.Errorf("single: %s: %w: %s: found %q, expected %q: that is what %s has", path, model.ErrConfig, classKey, class, f.kind.Class, f.path)
	}
}

// guess infers the configuration from names and shapes.
func (f *file) guess() ([]byte, error) {
	s := &shapes{f: f}
	keys := f.kind.Config(s)
	if s.err != nil {
		return nil, s.err
	}
	keys[classKey] = f.kind.Class
	return json.Marshal(keys)
}

// shapes implements [dit.Shapes]. It keeps the first error.
type shapes struct {
	f   *file
	err error
}

// fail records that a key cannot be inferred.
func (s *shapes) fail(format string, args ...any) {
	if s.err == nil {
		s.err = s.f.fail(model.ErrConfig, "%s; put the config.json of diffusers beside the file, or name it", fmt.Sprintf(format, args...))
	}
}

// Has implements [dit.Shapes].
func (s *shapes) Has(name string) bool {
	return s.f.names[name] != nil || slices.Contains(s.f.marks, name)
}

// Dim implements [dit.Shapes]. It returns 1 after an error.
func (s *shapes) Dim(name string, axis int) int {
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

// Count implements [dit.Shapes].
func (s *shapes) Count(pattern string) (n int) {
	for s.Has(fmt.Sprintf(pattern, n)) {
		n++
	}
	return n
}

// Ratio implements [dit.Shapes].
func (s *shapes) Ratio(key string, a, b int) int {
	if a%b != 0 {
		s.fail("%s: found %d of %d, expected a multiple", key, a, b)
	}
	return a / b
}

// Axes implements [dit.Shapes].
func (s *shapes) Axes(key string, head int, axes ...int) []int {
	sum := 0
	for _, n := range axes {
		sum += n
	}
	if sum != head {
		s.fail("%s cannot be told for heads of %d from shapes", key, head)
	}
	return axes
}
