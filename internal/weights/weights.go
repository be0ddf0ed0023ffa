// Package weights opens the tensors at a path in any supported form: a
// safetensors file, a file written by torch.save, the index of a model in
// several shards of either format, or a folder with one of these. All packages
// open models and adapters through it: [Open] opens a path given by the user,
// [OpenModel] and [OpenAdapter] the files that transformers and PEFT look for.
// It also knows which other files belong to a model's folder.
package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/safetensors/torchfile"
	"github.com/lorafuse/lorafuse/tensor"
)

// Errors that this package wraps, in addition to the errors of safetensors and
// torchfile.
var (
	// ErrNoWeights reports a folder without a weights file.
	ErrNoWeights = errors.New("no weights")
	// ErrAmbiguous reports a folder with several weights files, none of which
	// has a usual name.
	ErrAmbiguous = errors.New("several files of weights")
)

// Source describes an opened file: its format, and the reason if it was not the
// requested one.
type Source = torchfile.Source

// Data is the bytes of a tensor in host memory, usually a range of a mapped file. The
// bytes do not change, and stay mapped until every buffer created from them is freed.
type Data struct {
	Bytes []byte
	// Keep is referenced as long as such a buffer exists, and keeps the file
	// mapped. May be nil.
	Keep any
	// Brief reports that the buffer is used too briefly for copies in another layout.
	Brief bool
}

// Set holds the tensors at a path. It is safe for concurrent use.
type Set struct {
	*safetensors.Set
	// Stem is the name of the files without number and extension: "model",
	// "pytorch_model", "adapter_model".
	Stem string
	// Folder is the folder that was opened, empty if a file was opened.
	Folder string
	// Index is nil for a single file.
	Index *Index

	sources  []Source // by file
	converts bool

	blocks     *safetensors.File // matrices of blocks as bytes, or nil
	blockTypes map[string]Blocks

	packed      *Set     // that the set was unpacked from, or nil
	packedNames []string // weights that are unpacked
}

// Blocks is a matrix that the file has in a block type of another program. The set has it under
// the same name as floats.
type Blocks struct {
	DType tensor.DType
	Shape []int
	View  *safetensors.View // the bytes of the rows
}

// Blocks returns the blocks of a tensor; ok is false if the file has none.
func (s *Set) Blocks(name string) (b Blocks, ok bool, err error) {
	if b, ok = s.blockTypes[name]; !ok {
		return b, false, nil
	}
	b.View, err = s.blocks.Lookup(name)
	return b, true, err
}

// Close closes the files.
func (s *Set) Close() error {
	err := s.Set.Close()
	if s.blocks != nil {
		err = errors.Join(err, s.blocks.Close())
	}
	if s.packed != nil {
		err = errors.Join(err, s.packed.Close())
	}
	return err
}

// Converts reports that tensors are converted each time they are read, from a file that
// holds them in less memory. They should not be kept.
func (s *Set) Converts() bool { return s.converts }

// Open opens the weights at path. In a folder it looks for the names that
// transformers, PEFT and diffusers use, safetensors first, then for the only
// file of another name. As in [torchfile.OpenAny], a file of another format is
// opened only if the safetensors file does not exist, never because it is
// invalid.
//
// It fails with ErrNoWeights (which also wraps fs.ErrNotExist) and
// ErrAmbiguous, and as [safetensors.OpenIndex] and [torchfile.OpenAny] do.
func Open(path string) (*Set, error) {
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("weights: %w", err)
	}
	switch {
	case err == nil && info.IsDir():
		return openFolder(path)
	case err == nil:
		return openPath(path)
	}
	return openFile(path) // a file of another format may exist
}

// New returns the tensors of an open file. Closing the Set closes the file.
func New(f *safetensors.File) *Set {
	return &Set{
		Set: safetensors.NewSet(f), Stem: stem(f.Path()),
		sources: []Source{{Path: f.Path(), Format: "safetensors"}},
	}
}

// Place returns the given tensors of the file at path, which the file stores or from which
// they are computed; see [safetensors.OpenExternal]. why is a note for the user, returned by
// Why.
func Place(path string, tensors []safetensors.ExternalTensor, metadata map[string]string, why string) (*Set, error) {
	f, err := safetensors.OpenExternal(path, tensors, metadata)
	if err != nil {
		return nil, err
	}
	s := New(f)
	s.sources[0].Why = why
	return s, nil
}

// openFile opens the only file of a set.
func openFile(path string) (*Set, error) {
	f, source, err := torchfile.OpenAny(path)
	if err != nil {
		return nil, err
	}
	s := New(f)
	s.Stem, s.sources[0] = stem(source.Path), source
	return s, nil
}

// stem returns the base name of a file without its extension.
func stem(path string) string {
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

// openIndex opens the files listed in an index.
func openIndex(path string) (*Set, error) {
	s := &Set{Stem: stem(indexed(path))}
	set, err := safetensors.OpenIndexOf(path, filepath.Ext(indexed(path)), func(path string) (*safetensors.File, error) {
		f, source, err := torchfile.OpenAny(path)
		s.sources = append(s.sources, source)
		return f, err
	})
	if err != nil {
		return nil, err
	}
	s.Set = set
	if s.Index, err = readIndex(path); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Source returns the description of the i-th of Files.
func (s *Set) Source(i int) Source { return s.sources[i] }

// Views returns all tensors, in the order of Names.
func (s *Set) Views() ([]*safetensors.View, error) {
	views := make([]*safetensors.View, 0, s.Len())
	for _, f := range s.Files() {
		for _, name := range f.Names() {
			v, err := f.Lookup(name)
			if err != nil {
				return nil, err
			}
			views = append(views, v)
		}
	}
	return views, nil
}

// Metadata merges the metadata of all files. If files disagree, the first one
// takes precedence and the key is returned in conflicts. The map is nil if no
// file has metadata.
func (s *Set) Metadata() (metadata map[string]string, conflicts []string) {
	for _, f := range s.Files() {
		for key, value := range f.Metadata() {
			if metadata == nil {
				metadata = map[string]string{}
			}
			if old, ok := metadata[key]; !ok {
				metadata[key] = value
			} else if old != value {
				conflicts = append(conflicts, key)
			}
		}
	}
	slices.Sort(conflicts)
	return metadata, slices.Compact(conflicts)
}

// Formats returns the distinct formats of the files: "safetensors", "torch zip",
// "torch legacy".
func (s *Set) Formats() []string {
	return s.each(func(source Source) string { return source.Format })
}

// Why returns the reason, as a note for the user, why other files than the
// requested ones were opened or a format differs from the file's name. It is
// empty otherwise.
func (s *Set) Why() string {
	return strings.Join(s.each(func(source Source) string { return source.Why }), "; ")
}

// each returns the distinct nonempty results of say.
func (s *Set) each(say func(Source) string) []string {
	var all []string
	for _, source := range s.sources {
		if text := say(source); text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// Scalars returns the values in the files that are not tensors, as
// [torchfile.Scalars] does. Safetensors files have none.
func (s *Set) Scalars() (map[string]any, error) {
	all := map[string]any{}
	for i, f := range s.Files() {
		if !s.IsTorch(i) {
			continue
		}
		scalars, err := torchfile.Scalars(f.Path())
		if err != nil {
			return nil, err
		}
		maps.Copy(all, scalars)
	}
	return all, nil
}

// Verify checks the checksums of the files, as [torchfile.Verify] does, and
// returns an error per invalid file. Safetensors files have no checksums.
func (s *Set) Verify() (problems []error) {
	for i, f := range s.Files() {
		if !s.IsTorch(i) {
			continue
		}
		if err := torchfile.Verify(f.Path()); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// IsTorch reports whether the i-th of Files was written by torch.save.
func (s *Set) IsTorch(i int) bool { return strings.HasPrefix(s.sources[i].Format, "torch") }
