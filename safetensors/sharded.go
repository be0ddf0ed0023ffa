package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// DefaultShardSize is the number of bytes of data in a shard where the caller
// gives none: 10 GiB.
const DefaultShardSize = 10 << 30

var shardName = regexp.MustCompile(`^model-\d{5}-of-\d{5}\.safetensors$`)

// WriteSharded writes a model into a folder, which is made where there is none,
// in shards of at most maxShardSize bytes of data (0 for DefaultShardSize). As
// in the Hugging Face libraries the entries fill one shard after the other in
// the order given, and a tensor that is larger than a shard has one of its own.
// The shards are named model-00001-of-00003.safetensors and so on and listed in
// ModelIndex; where one file is enough, it is ModelFile and there is no index.
//
// The model takes the place of one that was there before, in one step: all
// shards are complete before the first gets its name, and the files of the old
// model that are no longer part of it are removed at the end. Only where old
// and new model have the same number of shards, so that the new ones replace
// the old, a crash in the middle leaves a folder without an index, which
// OpenModel refuses, instead of a mixture of both.
func WriteSharded(dir string, entries []Entry, maxShardSize int64, metadata map[string]string, opts ...Option) error {
	if maxShardSize <= 0 {
		maxShardSize = DefaultShardSize
	}
	if err := checkUnique(entries); err != nil {
		return withPath(err, dir)
	}
	shards, err := splitShards(entries, maxShardSize)
	if err != nil {
		return withPath(err, dir)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	w := shardWriter{dir: dir, options: newOptions(opts)}
	if err := w.stage(shards, metadata); err != nil {
		return errors.Join(err, w.discard())
	}
	return w.commit()
}

// splitShards cuts the entries into runs of at most limit bytes, greedily.
func splitShards(entries []Entry, limit int64) ([][]Entry, error) {
	var shards [][]Entry
	var current []Entry
	var filled int64
	for i := range entries {
		size, err := entries[i].Size()
		if err != nil {
			return nil, err
		}
		if size > limit { // it does not end the shard that is being filled
			shards = append(shards, entries[i:i+1])
			continue
		}
		if filled > limit-size {
			shards = append(shards, current)
			current, filled = nil, 0
		}
		current = append(current, entries[i])
		filled += size
	}
	if len(current) > 0 || len(shards) == 0 {
		shards = append(shards, current)
	}
	return shards, nil
}

// shardWriter replaces the model in a folder.
type shardWriter struct {
	dir     string
	options options
	names   []string // of the shards
	shards  []*pendingFile
	index   *pendingFile // nil where there is one shard
}

// stage writes everything under temporary names.
func (w *shardWriter) stage(shards [][]Entry, metadata map[string]string) error {
	for i, entries := range shards {
		name := ModelFile
		if len(shards) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		}
		path := filepath.Join(w.dir, name)
		l, err := newLayout(entries, metadata)
		if err != nil {
			return withPath(err, path)
		}
		p, err := l.stage(path, entries, w.options)
		if err != nil {
			return err
		}
		w.names = append(w.names, name)
		w.shards = append(w.shards, p)
	}
	if len(shards) == 1 {
		return nil
	}
	text, err := encodeIndex(shards, w.names)
	if err != nil {
		return err
	}
	w.index, err = stage(filepath.Join(w.dir, ModelIndex), int64(len(text)), w.options, func(f io.Writer) error {
		_, err := f.Write(text)
		return err
	})
	return err
}

func (w *shardWriter) discard() error {
	var errs []error
	for _, p := range w.shards {
		errs = append(errs, p.discard())
	}
	if w.index != nil {
		errs = append(errs, w.index.discard())
	}
	return errors.Join(errs...)
}

// commit puts the new model in the place of the old one. A reader prefers
// ModelFile to ModelIndex, which decides the order: the file or the index that
// makes the new model visible is renamed last, and what would hide it, or would
// belong to the old one, is removed after that.
func (w *shardWriter) commit() error {
	if w.index != nil && w.replacesShards() {
		if err := w.remove(ModelIndex); err != nil {
			return errors.Join(err, w.discard())
		}
	}
	for i, p := range w.shards {
		if err := p.commit(); err != nil {
			w.shards = w.shards[i+1:]
			return errors.Join(err, w.discard())
		}
	}
	if w.index == nil {
		return w.removeStale(ModelIndex)
	}
	if err := w.index.commit(); err != nil {
		return err
	}
	return w.removeStale(ModelFile)
}

// replacesShards reports whether the names of the new shards are in use.
func (w *shardWriter) replacesShards() bool {
	return slices.ContainsFunc(w.names, func(name string) bool {
		_, err := os.Lstat(filepath.Join(w.dir, name))
		return err == nil
	})
}

// removeStale removes the shards of an older model, after first, its head.
func (w *shardWriter) removeStale(first string) error {
	errs := []error{w.remove(first)}
	files, err := os.ReadDir(w.dir)
	errs = append(errs, err)
	for _, f := range files {
		if shardName.MatchString(f.Name()) && !slices.Contains(w.names, f.Name()) {
			errs = append(errs, w.remove(f.Name()))
		}
	}
	return errors.Join(errs...)
}

func (w *shardWriter) remove(name string) error {
	if err := os.Remove(filepath.Join(w.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("safetensors: remove file of the old model: %w", err)
	}
	return nil
}

// encodeIndex writes the index as the transformers library does: Python's
// json.dumps with an indent of 2, sorted keys, ASCII only.
func encodeIndex(shards [][]Entry, names []string) ([]byte, error) {
	type place struct{ tensor, shard string }
	var places []place
	var bytes, parameters int64
	for i, entries := range shards {
		for j := range entries {
			e := &entries[j]
			size, err := e.Size()
			if err != nil {
				return nil, err
			}
			bytes += size
			count := int64(1)
			for _, d := range e.Shape {
				count *= int64(d)
			}
			parameters += count
			places = append(places, place{e.Name, names[i]})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.tensor < b.tensor {
			return -1
		}
		return 1 // no two are equal
	})
	b := fmt.Appendf(nil, "{\n  \"metadata\": {\n    \"total_parameters\": %d,\n    \"total_size\": %d\n  },\n  \"weight_map\": {", parameters, bytes)
	for i, p := range places {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n    "...)
		b = appendASCIIString(b, p.tensor)
		b = append(b, ": "...)
		b = appendASCIIString(b, p.shard)
	}
	b = append(b, "\n  }\n}\n"...)
	if len(b) > maxIndex {
		return nil, &FormatError{Rule: ErrIndex, Found: byteCount(uint64(len(b))), Expected: "at most " + strconv.Itoa(maxIndex)}
	}
	return b, nil
}

// appendASCIIString is appendJSONString where everything that is not printable
// ASCII is escaped, in UTF-16, as in Python.
func appendASCIIString(b []byte, s string) []byte {
	escaped := appendJSONString(nil, s)
	for len(escaped) > 0 {
		r, size := utf8.DecodeRune(escaped)
		if r < 0x7f {
			b = append(b, byte(r))
		} else if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		} else {
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		escaped = escaped[size:]
	}
	return b
}
