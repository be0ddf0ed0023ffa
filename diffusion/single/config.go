package single

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/model"
)

const (
	configFile = "config.json"
	classKey   = "_class_name"
)

// config is the configuration: that in the file at path, or beside the weights, or what
// shapes say.
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
		return f.guess() // it is of something else
	default:
		return nil, fmt.Errorf("single: %s: %w: %s: found %q, expected %q: that is what %s has", path, model.ErrConfig, classKey, class, f.kind.class, f.path)
	}
}

// guess makes the configuration of names and shapes.
func (f *file) guess() ([]byte, error) {
	s := &shapes{f: f, keys: map[string]any{classKey: f.kind.class}}
	readers[f.kind.class](s)
	if s.err != nil {
		return nil, s.err
	}
	return json.Marshal(s.keys)
}

// shapes makes keys of a config.json. The first error stays.
type shapes struct {
	f    *file
	keys map[string]any
	err  error
}

// fail says that something cannot be told.
func (s *shapes) fail(format string, args ...any) {
	if s.err == nil {
		s.err = s.f.fail(model.ErrConfig, "%s; put the config.json of diffusers beside the file, or name it", fmt.Sprintf(format, args...))
	}
}

// dim is the length of an axis of a tensor, 1 where something is wrong.
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

// count is how many blocks there are: the numbers for which there is a tensor.
func (s *shapes) count(pattern string) int {
	n := 0
	for s.f.has(fmt.Sprintf(pattern, n)) {
		n++
	}
	return n
}

// ratio is a/b, which must be whole.
func (s *shapes) ratio(key string, a, b int) int {
	if a%b != 0 {
		s.fail("%s: found %d of %d, expected a multiple", key, a, b)
	}
	return a / b
}

// axes are those of the rotary embedding for heads of a size, which no shape tells.
func (s *shapes) axes(key string, head int, known map[int][]int) {
	axes, ok := known[head]
	if !ok {
		s.fail("%s cannot be told for heads of %d from shapes", key, head)
	}
	s.keys[key] = axes
}
