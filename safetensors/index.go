package safetensors

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxIndex is the maximum size of an index, 10 MiB as in the Hugging Face hub
// library.
const maxIndex = 10 << 20

const shardExtension = ".safetensors"

// shardIndex is a parsed index file.
type shardIndex struct {
	shards []string          // file names, each once, sorted
	shard  map[string]string // by tensor name
}

// readIndex reads a file such as model.safetensors.index.json.
func readIndex(path, extension string) (*shardIndex, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := info.Size()
	if size > maxIndex {
		return nil, &FormatError{Path: path, Rule: ErrIndex, Found: byteCount(uint64(size)), Expected: fmt.Sprintf("at most %d", maxIndex)}
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(f, text); err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", path, err)
	}
	index, err := parseIndex(text, extension)
	if err != nil {
		if Recognize(text) != ShardIndex && Recognize(text) != JSON { // report other formats as such
			err = recognized(err, f, size)
		}
		return nil, withPath(err, path)
	}
	return index, nil
}

// parseIndex parses an index: an object whose member weight_map maps every
// tensor to its shard, a file with the given extension. Other members are
// ignored.
func parseIndex(text []byte, extension string) (*shardIndex, error) {
	if !utf8.Valid(text) {
		return nil, &FormatError{Rule: ErrUTF8, Found: "invalid bytes", Offset: int64(firstInvalid(text))}
	}
	s := &scanner{text: text}
	index := &shardIndex{}
	err := s.object(func(key string) error {
		if key != "weight_map" {
			return s.skip(1)
		}
		if index.shard != nil {
			return s.fail(ErrIndex, "one weight_map")
		}
		if s.peek() != '{' {
			return s.fail(ErrIndex, "an object of file names as the weight_map")
		}
		index.shard = map[string]string{}
		return s.object(func(tensor string) error { return index.readShard(s, tensor, extension) })
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, err
	}
	if index.shard == nil {
		return nil, &FormatError{Rule: ErrIndex, Expected: "a weight_map"}
	}
	for _, shard := range index.shard {
		index.shards = append(index.shards, shard)
	}
	slices.Sort(index.shards)
	index.shards = slices.Compact(index.shards)
	return index, nil
}

func (x *shardIndex) readShard(s *scanner, tensor, extension string) error {
	if s.peek() != '"' {
		return ofTensor(s.fail(ErrIndex, "the name of a file"), tensor)
	}
	shard, err := s.string()
	if err != nil {
		return err
	}
	if _, ok := x.shard[tensor]; ok {
		return tensorError(tensor, ErrDuplicateTensor, quote(x.shard[tensor])+" and "+quote(shard), "one shard")
	}
	if !isShardPath(shard, extension) {
		return tensorError(tensor, ErrShardPath, quote(shard), "a name that ends in "+extension)
	}
	x.shard[tensor] = shard
	return nil
}

// isShardPath reports whether a path stays in the folder of the index. It
// interprets the path as Windows does on every system, because the checkpoint
// may be meant for another one: backslashes separate elements, and a letter and
// a colon are a drive.
func isShardPath(path, extension string) bool {
	if filepath.Ext(path) != extension || strings.ContainsRune(path, 0) {
		return false
	}
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '\\' })
	_, first := utf8.DecodeRuneInString(path)
	switch {
	case parts[len(parts)-1] == extension: // a name that consists of the extension only
		return false
	case path[0] == '/' || path[0] == '\\': // a root, or a network drive
		return false
	case strings.HasPrefix(path[first:], ":"): // a drive
		return false
	case slices.Contains(parts, ".."):
		return false
	}
	return filepath.IsLocal(filepath.FromSlash(path))
}
