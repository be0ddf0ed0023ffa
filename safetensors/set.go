package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Set holds the tensors of a model, in one file or several shards. It is safe
// for concurrent use.
type Set struct {
	path   string // of the index, or of the one file
	files  []*File
	holder map[string]*File  // by tensor name; nil for a single file
	absent map[string]string // shard that should hold a missing tensor, according to the index
}

// OpenModel opens the model in a folder: ModelFile if it exists, as in the
// transformers library, or else the shards listed in ModelIndex. Stem and
// Variant select another model. With a stem other than that of transformers the
// index takes precedence over the file, as in diffusers and huggingface_hub. If
// the folder has neither, the error is fs.ErrNotExist and lists what the folder
// contains.
func OpenModel(dir string, name ...NameOption) (*Set, error) {
	n, err := newModelName(name)
	if err != nil {
		return nil, err
	}
	path, isIndex, err := n.find(dir)
	if err != nil {
		return nil, err
	}
	if isIndex {
		return OpenIndex(path)
	}
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	return NewSet(f), nil
}

// NewSet returns the tensors of files as a Set; of several tensors of a name it
// has the first. Closing the Set closes the files.
func NewSet(f *File, more ...*File) *Set {
	return &Set{path: f.path, files: append([]*File{f}, more...)}
}

// OpenIndex opens the shards listed in an index such as
// model.safetensors.index.json, from the folder of the index; other files there
// are ignored. The set holds the tensors that the shards hold, whether or not
// the index lists them: see Absent.
//
// It fails with ErrIndex if the index is not an object with a weight_map of
// strings or exceeds 10 MiB, with ErrShardPath if a shard is outside the folder
// or of another file type, with ErrMissingShard, which lists all missing
// shards, with ErrDuplicateTensor if two shards hold the same name, and as Open
// does.
func OpenIndex(path string) (*Set, error) { return OpenIndexOf(path, shardExtension, Open) }

// OpenIndexOf opens shards of another format, like OpenIndex: files with the
// given extension (".bin"), which are opened with open.
func OpenIndexOf(path, extension string, open func(path string) (*File, error)) (*Set, error) {
	index, err := readIndex(path, extension)
	if err != nil {
		return nil, err
	}
	paths, err := index.find(path)
	if err != nil {
		return nil, err
	}
	set := &Set{path: path, holder: make(map[string]*File, len(index.shard))}
	for _, path := range paths {
		f, err := open(path)
		if err != nil {
			return nil, errors.Join(err, set.Close())
		}
		set.files = append(set.files, f)
		for i := range f.header.records {
			name := f.header.records[i].name
			if other, ok := set.holder[name]; ok {
				err := &FormatError{Path: path, Tensor: name, ofTensor: true, Rule: ErrDuplicateTensor, Found: "it in " + other.path + " as well"}
				return nil, errors.Join(err, set.Close())
			}
			set.holder[name] = f
		}
	}
	for name, shard := range index.shard {
		if _, ok := set.holder[name]; !ok {
			if set.absent == nil {
				set.absent = map[string]string{}
			}
			set.absent[name] = shard
		}
	}
	return set, nil
}

// find returns the paths of the shards, or an error that lists all missing
// ones.
func (x *shardIndex) find(path string) ([]string, error) {
	var paths, missing []string
	for _, shard := range x.shards {
		p := filepath.Join(filepath.Dir(path), filepath.FromSlash(shard))
		if _, err := os.Stat(p); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, shard)
		}
		paths = append(paths, p)
	}
	if len(missing) > 0 {
		const most = 10
		names := strings.Join(missing[:min(most, len(missing))], ", ")
		if len(missing) > most {
			names += ", …"
		}
		return nil, fmt.Errorf("safetensors: %s: %d of %d: %s: %w (%w)", path, len(missing), len(paths), names, ErrMissingShard, fs.ErrNotExist)
	}
	return paths, nil
}

// Path returns the path of the index, or of the only file.
func (s *Set) Path() string { return s.path }

// Files returns the files of the set, sorted by name.
func (s *Set) Files() []*File { return slices.Clone(s.files) }

// Len returns the number of tensors.
func (s *Set) Len() int {
	n := 0
	for _, f := range s.files {
		n += f.Len()
	}
	return n
}

// Names returns the names of the tensors, file by file, in the order of their
// data.
func (s *Set) Names() []string {
	names := make([]string, 0, s.Len())
	for _, f := range s.files {
		names = append(names, f.Names()...)
	}
	return names
}

// Absent returns the sorted names that the index lists but no shard holds. Some
// published checkpoints have such names. Lookup fails for them.
func (s *Set) Absent() []string {
	names := make([]string, 0, len(s.absent))
	for name := range s.absent {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Has reports whether one of the files holds a tensor with the given name.
func (s *Set) Has(name string) bool { return s.file(name) != nil }

// Lookup returns the tensor with the given name, without reading it. It fails
// like File.Lookup.
func (s *Set) Lookup(name string) (*View, error) {
	if f := s.file(name); f != nil {
		return f.Lookup(name)
	}
	return nil, &NotFoundError{Path: s.path, Name: name, Shard: s.absent[name], names: s.Names}
}

func (s *Set) file(name string) *File {
	if s.holder != nil {
		return s.holder[name]
	}
	for _, f := range s.files {
		if f.Has(name) {
			return f
		}
	}
	return nil
}

// Close closes all files, or none of them if one is in use (ErrInUse). Views
// stay valid as described at File.Close.
func (s *Set) Close() error { return closeAll(s.files) }
