package load

import (
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/safetensors"
)

const page = 4096

// operations are those of this program, by the words for them.
var operations = map[string]operation{
	"open":         opOpen,
	"one":          opOne,
	"one_cold":     opOneCold,
	"parse":        opParse,
	"touch":        opTouch,
	"save":         save(),
	"save_durable": save(safetensors.Durable()),
	"save_sharded": opSaveSharded,
	"populate":     opPopulate,
	"read":         opRead,
	"write":        opWrite,
}

// opOpen opens a file and makes the views of all tensors.
func opOpen(t *task) (func() (func() error, error), error) {
	return func() (func() error, error) {
		f, _, err := openAll(t.file)
		if err != nil {
			return nil, err
		}
		return f.Close, nil
	}, nil
}

func openAll(path string) (*safetensors.File, []*safetensors.View, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, nil, err
	}
	names := f.Names()
	views := make([]*safetensors.View, len(names))
	for i, name := range names {
		if views[i], err = f.Lookup(name); err != nil {
			return nil, nil, err
		}
	}
	return f, views, nil
}

// opOne opens a file and copies one tensor from its middle.
func opOne(t *task) (func() (func() error, error), error) {
	name, size, err := middle(t.file)
	return func() (func() error, error) { return readOne(t.file, name, make([]byte, size)) }, err
}

// middle names the tensor in the middle of a file.
func middle(path string) (name string, size int, err error) {
	f, views, err := openAll(path)
	if err != nil {
		return "", 0, err
	}
	v := views[len(views)/2]
	return v.Name, v.Len(), f.Close()
}

func readOne(path, name string, to []byte) (release func() error, err error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	v, err := f.Lookup(name)
	if err != nil {
		return nil, err
	}
	_, err = v.ReadAt(to, 0)
	return f.Close, err
}

// opOneCold is opOne of a file of which nothing is in the page cache, and finds
// out how much of it is afterwards.
func opOneCold(t *task) (func() (func() error, error), error) {
	name, size, err := middle(t.file)
	if err != nil {
		return nil, err
	}
	if err := evict(t.file); err != nil {
		return nil, err
	}
	return func() (func() error, error) {
		closeFile, err := readOne(t.file, name, make([]byte, size))
		if err != nil {
			return nil, err
		}
		return func() error {
			if err := closeFile(); err != nil {
				return err
			}
			t.share, err = cached(t.file)
			return err
		}, nil
	}, nil
}

// opParse checks and indexes a header that is in memory.
func opParse(t *task) (func() (func() error, error), error) {
	data, err := os.ReadFile(t.file)
	return func() (func() error, error) {
		_, err := safetensors.FromBytes(data)
		return nil, err
	}, err
}

// opTouch opens a file and reads one byte of every page of every tensor.
func opTouch(t *task) (func() (func() error, error), error) {
	sum := byte(0)
	return func() (func() error, error) {
		f, views, err := openAll(t.file)
		if err != nil {
			return nil, err
		}
		for _, v := range views {
			err := v.Use(func(data []byte) error {
				for at := 0; at < len(data); at += page {
					sum += data[at]
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		return f.Close, nil
	}, nil
}

// inMemory reads the tensors of a file into memory of this process.
func inMemory(path string) (entries []safetensors.Entry, metadata map[string]string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	f, err := safetensors.FromBytes(data)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		if err != nil {
			return nil, nil, err
		}
		entries = append(entries, safetensors.Entry{Name: v.Name, DType: v.DType, Shape: v.Shape, Data: v.Bytes()})
	}
	return entries, f.Metadata(), nil
}

// save writes the tensors of a file from memory.
func save(options ...safetensors.Option) operation {
	return func(t *task) (func() (func() error, error), error) {
		entries, metadata, err := inMemory(t.file)
		return func() (func() error, error) { return nil, safetensors.WriteFile(t.out, entries, metadata, options...) }, err
	}
}

// opSaveSharded writes them in five shards.
func opSaveSharded(t *task) (func() (func() error, error), error) {
	entries, metadata, err := inMemory(t.file)
	if err != nil {
		return nil, err
	}
	var size int64
	for i := range entries {
		size += int64(len(entries[i].Data))
	}
	run := func() (func() error, error) {
		return nil, safetensors.WriteSharded(t.out, entries, size/4, metadata)
	}
	return run, os.MkdirAll(filepath.Dir(t.out), 0o777)
}
