package load

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/safetensors"
)

const page = 4096

// operations maps names to the operations of this program.
var operations = map[string]operation{
	"open":         opOpen,
	"parse":        opParse,
	"populate":     opPopulate,
	"copy":         opCopy,
	"recopy":       opRecopy,
	"widen":        opWiden,
	"save":         save(),
	"save_durable": save(safetensors.Durable()),
	"map_populate": opMapPopulate,
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
	views, err := f.Views()
	return f, views, err
}

// opParse checks and indexes a header that is in memory.
func opParse(t *task) (func() (func() error, error), error) {
	data, err := os.ReadFile(t.file)
	return func() (func() error, error) {
		_, err := safetensors.FromBytes(data)
		return nil, err
	}, err
}

// opPopulate opens a file and maps every page.
func opPopulate(t *task) (func() (func() error, error), error) {
	return func() (func() error, error) {
		f, err := safetensors.Open(t.file)
		if err != nil {
			return nil, err
		}
		stats, err := f.Populate(context.Background(), safetensors.LoadOptions{})
		t.detail = said(stats)
		return f.Close, err
	}, nil
}

// opCopy opens a file and copies all tensors into memory that is new to this process.
func opCopy(t *task) (func() (func() error, error), error) {
	return func() (func() error, error) {
		f, views, err := openAll(t.file)
		if err != nil {
			return nil, err
		}
		b, stats, err := safetensors.LoadHost(context.Background(), views, safetensors.LoadOptions{})
		if err != nil {
			return nil, err
		}
		t.detail = said(stats)
		return func() error { return errors.Join(b.Close(), f.Close()) }, nil
	}, nil
}

// opRecopy runs opCopy into memory that was already used.
func opRecopy(t *task) (func() (func() error, error), error) {
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
		stats, err := safetensors.Load(context.Background(), views, b, safetensors.LoadOptions{})
		t.detail = said(stats)
		return f.Close, err
	}
	release, err := run()
	if err != nil {
		return nil, err
	}
	return run, release()
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
