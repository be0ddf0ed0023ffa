package safetensors

import (
	"fmt"
	"os"
	"path/filepath"
)

// DefaultShardSize is the default number of bytes of data in a shard: 10 GiB.
const DefaultShardSize = 10 << 30

// WriteSharded writes a model into a folder, which is created if it does not
// exist. Each shard has at most maxShardSize bytes of data (0 for
// DefaultShardSize; ParseSize parses sizes such as "5GB"). As in the Hugging Face
// libraries, the entries fill one shard after another in the given order, and a
// tensor larger than a shard gets its own shard. The shards are named
// model-00001-of-00003.safetensors and so on and listed in ModelIndex. A single
// file is named ModelFile, without an index. Stem and Variant change the names.
// Every file contains the metadata.
//
// The index is identical to the one written by the library of the stem:
// transformers, diffusers, or huggingface_hub for any other stem; see the package
// documentation.
//
// The new model replaces the old one of the same stem and variant in one step:
// all shards are complete before the first one is named, and at any moment a
// reader finds either the old or the new model, complete. Then the files of the
// old model are removed; other stems and variants are kept. If the file system
// has no hard links and shards replace others of the same name, no model is
// visible for a moment: OpenModel fails, and a crash may leave the folder in this
// state.
//
// Only one process at a time may write a model into a folder. A process that
// opens the model during the replacement may find shards of the old model
// missing; it can try again.
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

// splitShards divides the entries into runs of at most limit bytes, greedily.
func splitShards(entries []Entry, limit int64) ([][]Entry, error) {
	var shards [][]Entry
	var current []Entry
	var filled int64
	for i := range entries {
		size, err := entries[i].Size()
		if err != nil {
			return nil, err
		}
		if size > limit { // the current shard stays open
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

// makeFolder creates a folder and its parents, like os.MkdirAll. If durable is
// set, it also makes the names of the new folders survive a crash of the
// machine.
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
