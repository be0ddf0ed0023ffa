package safetensors

import (
	"fmt"
	"os"
	"path/filepath"
)

// DefaultShardSize is the number of bytes of data in a shard where the caller
// gives none: 10 GiB.
const DefaultShardSize = 10 << 30

// WriteSharded writes a model into a folder, which is made where there is none,
// in shards of at most maxShardSize bytes of data (0 for DefaultShardSize;
// ParseSize reads sizes such as "5GB"). As in the Hugging Face libraries the
// entries fill one shard after the other in the order given, and a tensor that
// is larger than a shard has one of its own. The shards are named
// model-00001-of-00003.safetensors and so on and listed in ModelIndex; where one
// file is enough, it is ModelFile and there is no index. Stem and Variant give
// them other names. The metadata is that of every file.
//
// The index has the bytes of that which the library of the stem writes:
// transformers, diffusers, or huggingface_hub for any other stem; see the notes
// of the package.
//
// The model takes the place of the one that was there before by the same stem
// and variant, in one step: all shards are complete before the first gets its
// name, and at any moment a reader finds the old model or the new one, whole. The
// files of the old one are removed at the end, those of other stems and variants
// stay. Where the folder's file system has no hard links, and only if shards
// replace others of the same name, there is a moment without a model, which
// OpenModel refuses; a crash may leave that.
//
// Only one process at a time may write a model into a folder, and one that opens
// it in that moment may find that shards of the old model are missing; it
// can try again.
func WriteSharded(dir string, entries []Entry, maxShardSize int64, metadata map[string]string, opts ...Option) error {
	o := newOptions(opts)
	if err := o.name.check(); err != nil {
		return err
	}
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
	if err := makeFolder(dir, o.durable); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	w := newShardWriter(dir, shards, o)
	if err := w.stage(metadata); err != nil {
		w.discard()
		return err
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

// makeFolder is os.MkdirAll. Where the new folders must survive a crash of the
// machine, so must their names.
func makeFolder(dir string, durable bool) error {
	if !durable {
		return os.MkdirAll(dir, 0o777)
	}
	info, err := os.Stat(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeFolder(parent, durable); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return syncFolder(parent)
}
