// Package weights opens the tensors at a path, whatever they lie in: a
// safetensors file, one that torch.save has written, a model that an index
// spreads over several of either, or a folder with one of these. All that reads
// models and adapters opens them here: [Open] what a user names, [OpenModel] and
// [OpenAdapter] the files that transformers and PEFT look for. It also knows
// which files beside the weights make up a model's folder.
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
)

// Errors that this package wraps, beside those of safetensors and torchfile.
var (
	// ErrNoWeights: a folder without a file of weights.
	ErrNoWeights = errors.New("no weights")
	// ErrAmbiguous: a folder with several files, none of which has one of the
	// usual names.
	ErrAmbiguous = errors.New("several files of weights")
)

// Source says what was opened, in which format, and why where there is something
// to say.
type Source = torchfile.Source

// Data is the bytes of a tensor in host memory, usually a range of a mapped file. The
// bytes do not change, and stay mapped until every buffer made of them is freed.
type Data struct {
	Bytes []byte
	// Keep is held as long as such a buffer, and keeps the file mapped. May be nil.
	Keep any
}

// Set is the tensors at a path. It is safe for concurrent use.
type Set struct {
	*safetensors.Set
	// Stem is the name of the files without numbers and endings: "model",
	// "pytorch_model", "adapter_model".
	Stem string
	// Folder is the folder that was opened, empty where a file was named.
	Folder string
	// Index is nil where there is one file.
	Index *Index

	sources []Source // of the files, in their order
}

// Open opens what is at path. A folder is searched for the names that
// transformers, PEFT and diffusers use, safetensors first, then for the only
// file of another name. As in [torchfile.OpenAny] a file of another format is
// opened only where there is no safetensors file: never past a broken one.
//
// It fails with ErrNoWeights (which is fs.ErrNotExist, too) and ErrAmbiguous,
// and as [safetensors.OpenIndex] and [torchfile.OpenAny] do.
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
	return openFile(path) // one that is missing may have a twin
}

// New returns the tensors of a file that is open already, which the Set closes.
func New(f *safetensors.File) *Set {
	return &Set{
		Set: safetensors.NewSet(f), Stem: stem(f.Path()),
		sources: []Source{{Path: f.Path(), Format: "safetensors"}},
	}
}

// Place returns tensors that are said to lie in the file at path, or are made of what lies
// there, see [safetensors.OpenPlaced]; why says of them what there is to say to people.
func Place(path string, tensors []safetensors.Placed, metadata map[string]string, why string) (*Set, error) {
	f, err := safetensors.OpenPlaced(path, tensors, metadata)
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

// stem is the name of a file without its ending.
func stem(path string) string {
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

// openIndex opens the files that an index names.
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

// Source says what the i-th of Files is.
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

// Metadata joins the metadata of all files. Where they do not agree, the first
// file decides and the key is among the conflicts. It is nil where no file has
// any.
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

// Formats names the formats of the files, each once: "safetensors", "torch zip",
// "torch legacy".
func (s *Set) Formats() []string {
	return s.each(func(source Source) string { return source.Format })
}

// Why says, for people, why files were opened that were not asked for, or as
// something else than their names say. It is empty where there is nothing to
// say.
func (s *Set) Why() string {
	return strings.Join(s.each(func(source Source) string { return source.Why }), "; ")
}

// each collects what is said of the files, each once and nothing of nothing.
func (s *Set) each(say func(Source) string) []string {
	var all []string
	for _, source := range s.sources {
		if text := say(source); text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// Scalars returns what the files hold beside tensors, as [torchfile.Scalars]
// does; of safetensors files that is nothing.
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

// Verify compares the checksums that the files have, as [torchfile.Verify] does,
// and returns what is wrong with each; safetensors files have none.
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

// IsTorch reports whether torch.save has written the i-th of Files.
func (s *Set) IsTorch(i int) bool { return strings.HasPrefix(s.sources[i].Format, "torch") }
