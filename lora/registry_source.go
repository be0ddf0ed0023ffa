package lora

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// source is the location of an adapter's files: a folder, or a folder below a root that
// confines all reads.
type source struct {
	root string // empty if there is no root
	dir  string // in it
	step bool   // of training, which may have no effect

	options *RegistryOptions // to open adapters in other forms, or nil

	published *State // instead of files
}

// String returns the folder, or an empty string for a state that was published.
func (s source) String() string { return filepath.Join(s.root, s.dir) }

// errRoot is the error of a root of adapters that can no longer be opened.
var errRoot = errors.New("root of adapters")

// read reads an adapter into memory. It fails with errUnknown if the root has no such
// folder.
func (s source) read() (*Adapter, error) {
	if s.root == "" {
		a, err := s.readFrom(os.DirFS(s.dir), ".")
		if s.options == nil || s.options.Open == nil {
			return a, err
		}
		var names []string
		if err == nil {
			names = a.Names()
		}
		if other, ok, err := s.options.Open(s.dir, names); err != nil {
			return nil, err
		} else if ok {
			other.step = s.step
			return other, other.Close()
		}
		return a, err
	}
	root, err := os.OpenRoot(s.root)
	if err != nil {
		return nil, fmt.Errorf("lora: %w: %w", errRoot, err)
	}
	defer root.Close()
	info, err := root.Stat(s.dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, errUnknown
	}
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", s, err)
	}
	return s.readFrom(root.FS(), s.dir)
}

// readFrom reads the files of a folder, which must be the same before and after.
func (s source) readFrom(files fs.FS, folder string) (*Adapter, error) {
	failed := func(err error) error { return fmt.Errorf("lora: adapter %s: %w", s, err) }
	before, err := look(files, folder)
	if err != nil {
		return nil, failed(err)
	}
	text, err := fs.ReadFile(files, path.Join(folder, ConfigFile))
	if err != nil {
		return nil, failed(err)
	}
	data, err := fs.ReadFile(files, path.Join(folder, WeightsFile))
	if err != nil {
		return nil, failed(err)
	}
	template, templateText, err := readTemplate(files, folder)
	if err != nil {
		return nil, failed(err)
	}
	var words [2][]byte
	for i, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		if words[i], err = fs.ReadFile(files, path.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, failed(err)
		}
	}
	if after, err := look(files, folder); err != nil || !slices.EqualFunc(before, after, same) {
		return nil, failed(fmt.Errorf("%w while they were read", ErrChanged))
	}
	c, err := ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, s)
	}
	tensors, err := tensorsOf(data)
	if err != nil {
		return nil, failed(err)
	}
	a, err := New(c, tensors)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, s)
	}
	a.Dir, a.step = s.String(), s.step
	a.template, a.templateText = template, templateText
	a.tokenizer, a.tokenizerConfig = words[0], words[1]
	return a, nil
}

// readTemplate reads the chat template of an adapter, if it has one, and the files that it is from.
func readTemplate(files fs.FS, folder string) (*chat.Template, []byte, error) {
	sub, err := fs.Sub(files, folder)
	if err != nil {
		return nil, nil, err
	}
	before, err := chat.FilesFS(sub)
	if err != nil {
		return nil, nil, err
	}
	template, err := chat.LoadFS(sub)
	if errors.Is(err, chat.ErrNoTemplate) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	after, err := chat.FilesFS(sub)
	if err == nil && !bytes.Equal(before, after) {
		err = fmt.Errorf("%w while they were read", ErrChanged)
	}
	return template, after, err
}

// look describes the files of an adapter.
func look(files fs.FS, folder string) ([]fs.FileInfo, error) {
	var infos []fs.FileInfo
	for _, name := range []string{ConfigFile, WeightsFile} {
		info, err := fs.Stat(files, path.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) && name == WeightsFile {
			if _, torch := fs.Stat(files, path.Join(folder, TorchWeightsFile)); torch == nil {
				return nil, fmt.Errorf("%w: found %s, expected %s", ErrUnsupported, TorchWeightsFile, WeightsFile)
			}
		}
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: %w", name, safetensors.ErrNotRegular)
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func same(x, y fs.FileInfo) bool {
	return os.SameFile(x, y) && x.Size() == y.Size() && x.ModTime().Equal(y.ModTime())
}

// tensorsOf returns the tensors of a file in memory, in place.
func tensorsOf(data []byte) ([]Tensor, error) {
	f, err := safetensors.FromBytes(data)
	if err != nil {
		return nil, err
	}
	var out []Tensor
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		if err != nil {
			return nil, err
		}
		d, err := tensor.ParseDType(v.DType.String())
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %v: %w", name, v.DType, ErrDType)
		}
		out = append(out, Tensor{name, tensor.Tensor{DType: d, Shape: v.Shape, Data: v.Bytes()}})
	}
	return out, nil
}
