package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/safetensors"
)

const page = 4096

// operations maps names to the operations of this program.
var operations = map[string]operation{
	"open":           opOpen,
	"one":            opOne,
	"one_cold":       opOneCold,
	"parse":          opParse,
	"touch":          opTouch,
	"populate":       populate(0),
	"populate_1":     populate(1),
	"copy":           copyFirst(safetensors.LoadOptions{}),
	"copy_pread_1":   copyFirst(safetensors.LoadOptions{Strategy: safetensors.Pread, Threads: 1}),
	"copy_pread_2":   copyFirst(safetensors.LoadOptions{Strategy: safetensors.Pread, Threads: 2}),
	"copy_mmap_1":    copyFirst(safetensors.LoadOptions{Strategy: safetensors.Mmap, Threads: 1}),
	"copy_direct":    copyFirst(safetensors.LoadOptions{Strategy: safetensors.Direct}),
	"recopy":         copyAgain(safetensors.LoadOptions{}),
	"recopy_pread_1": copyAgain(safetensors.LoadOptions{Strategy: safetensors.Pread, Threads: 1}),
	"recopy_pread_2": copyAgain(safetensors.LoadOptions{Strategy: safetensors.Pread, Threads: 2}),
	"recopy_mmap_1":  copyAgain(safetensors.LoadOptions{Strategy: safetensors.Mmap, Threads: 1}),
	"recopy_direct":  copyAgain(safetensors.LoadOptions{Strategy: safetensors.Direct}),
	"widen":          opWiden,
	"convert":        toF32(true),
	"convert_unread": toF32(false),
	"save":           save(),
	"save_durable":   save(safetensors.Durable()),
	"save_sharded":   opSaveSharded,
	"map_populate":   opMapPopulate,
	"read":           opRead,
	"write":          opWrite,
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
	views, err := f.Views()
	return f, views, err
}

// opOne opens a file and copies one tensor from its middle.
func opOne(t *task) (func() (func() error, error), error) {
	name, size, err := middle(t.file)
	return func() (func() error, error) { return readOne(t.file, name, make([]byte, size)) }, err
}

// middle returns the name and size of the tensor in the middle of a file.
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

// opOneCold runs opOne on a file that is not in the page cache, then measures how much of the file is cached.
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

// populate opens a file and maps every page with the given number of threads.
func populate(threads int) operation {
	return func(t *task) (func() (func() error, error), error) {
		return func() (func() error, error) {
			f, err := safetensors.Open(t.file)
			if err != nil {
				return nil, err
			}
			stats, err := f.Populate(context.Background(), safetensors.LoadOptions{Threads: threads})
			t.detail = said(stats)
			return f.Close, err
		}, nil
	}
}

// copyFirst opens a file and copies all tensors into memory that is new to this
// process.
func copyFirst(o safetensors.LoadOptions) operation {
	return func(t *task) (func() (func() error, error), error) {
		return func() (func() error, error) {
			f, views, err := openAll(t.file)
			if err != nil {
				return nil, err
			}
			b, stats, err := safetensors.LoadHost(context.Background(), views, o)
			if err != nil {
				return nil, err
			}
			t.detail = said(stats)
			return func() error { return errors.Join(b.Close(), f.Close()) }, nil
		}, nil
	}
}

// copyAgain runs copyFirst into memory that was already used.
func copyAgain(o safetensors.LoadOptions) operation {
	return func(t *task) (func() (func() error, error), error) {
		b, err := safetensors.NewHostBuffer(nil)
		if err != nil {
			return nil, err
		}
		run := func() (func() error, error) {
			f, views, err := openAll(t.file)
			if err != nil {
				return nil, err
			}
			if err := b.Reset(views); err != nil {
				return nil, err
			}
			stats, err := safetensors.Load(context.Background(), views, b, o)
			t.detail = said(stats)
			return f.Close, err
		}
		release, err := run()
		if err != nil {
			return nil, err
		}
		return run, release()
	}
}

// said formats the statistics that Load reports.
func said(s safetensors.LoadStats) string {
	if s.Threads == 1 {
		return fmt.Sprintf("%v, 1 thread", s.Strategy)
	}
	return fmt.Sprintf("%v, %d threads", s.Strategy, s.Threads)
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

// opSaveSharded writes the tensors in five shards.
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
