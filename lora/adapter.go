package lora

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// Adapter is an open adapter folder: its configuration and its memory-mapped tensors.
// Memory obtained from an Adapter is read-only, and valid as long as the Adapter is
// reachable. If the file is truncated after it was opened, the methods that read values
// fail with safetensors.ErrFault; callers that read a Tensor in place must handle the
// fault themselves, see [safetensors.Fault].
type Adapter struct {
	Config *Config
	Dir    string
	Source weights.Source // the file that the tensors are from

	names   []string // in the order of the file
	tensors map[string]tensor.Tensor
	set     *weights.Set
	views   []*safetensors.View // hold the mapping
	step    bool                // of training, which may have no effect

	template     *chat.Template // of a registry's adapter, nil if its folder has none
	templateText []byte         // the files that it is from

	tokenizer, tokenizerConfig []byte // tokenizer.json and tokenizer_config.json of a registry's adapter
}

// Load opens the adapter in dir, of PEFT or of mlx-lm (see [IsMLX]). Like PEFT, it reads TorchWeightsFile only if there is
// no WeightsFile, not even a broken one; Source reports the choice. The tensors are not
// checked yet, see [Adapter.Check].
func Load(dir string) (*Adapter, error) {
	path := filepath.Join(dir, ConfigFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("lora: read adapter: %w", err)
	}
	if isMLX(data) {
		return loadMLX(dir, data)
	}
	c, err := parseFile(path, data)
	if err != nil {
		return nil, err
	}
	set, err := weights.OpenAdapter(dir)
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", dir, err)
	}
	a := &Adapter{Config: c, Dir: dir, Source: set.Origin(), names: set.Names(), tensors: make(map[string]tensor.Tensor, set.Len()), set: set}
	for _, name := range a.names {
		if err := a.addView(name); err != nil {
			set.Close()
			return nil, err
		}
	}
	return a, nil
}

func (a *Adapter) addView(name string) error {
	v, err := a.set.Lookup(name)
	if err != nil {
		return fmt.Errorf("lora: adapter %s: %w", a.Dir, err)
	}
	d, err := tensor.ParseDType(v.DType.String())
	if err != nil {
		return fmt.Errorf("lora: adapter %s: tensor %q: %v: %w", a.Dir, name, v.DType, ErrDType)
	}
	data := v.Bytes()
	if data == nil && v.Len() > 0 { // bytes that are not in place are read here, and that has failed
		err := v.WithBytes(func([]byte) error { return nil })
		return fmt.Errorf("lora: adapter %s: %w", a.Dir, err)
	}
	a.tensors[name] = tensor.Tensor{DType: d, Shape: v.Shape, Data: data}
	a.views = append(a.views, v)
	return nil
}

// New makes an adapter of tensors in memory.
func New(c *Config, tensors []Tensor) (*Adapter, error) {
	a := &Adapter{Config: c, tensors: make(map[string]tensor.Tensor, len(tensors))}
	for _, t := range tensors {
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("lora: tensor %q: %w", t.Key, err)
		}
		if _, twice := a.tensors[t.Key]; twice {
			return nil, fmt.Errorf("lora: tensor %q is given twice", t.Key)
		}
		a.names = append(a.names, t.Key)
		a.tensors[t.Key] = t.Tensor
	}
	return a, nil
}

// Tensor is one tensor of an adapter under its key in the file.
type Tensor struct {
	Key string
	tensor.Tensor
}

// Close releases the file. Memory obtained from the adapter stays valid. On Windows a
// file cannot be replaced before it is closed.
func (a *Adapter) Close() error {
	if a.set == nil {
		return nil
	}
	return a.set.Close()
}

// Names returns the keys of the tensors in file order.
func (a *Adapter) Names() []string { return a.names }

// Tensor returns the tensor of that key, in place.
func (a *Adapter) Tensor(key string) (tensor.Tensor, bool) {
	t, ok := a.tensors[key]
	return t, ok
}

// Float32s returns a copy of a tensor, converted to float32. It fails with ErrMissing
// if the key does not exist, and with safetensors.ErrFault if the file was truncated
// after it was opened.
func (a *Adapter) Float32s(key string) ([]float32, error) {
	t, ok := a.tensors[key]
	if !ok {
		return nil, fmt.Errorf("lora: %s%q: %w%s", a.where(), key, ErrMissing, suggest.DidYouMean(key, a.names))
	}
	var v []float32
	err := reading(func() (err error) {
		v, err = t.Float32s()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lora: %s%q: %w", a.where(), key, err)
	}
	return v, nil
}

// where returns the name of the adapter for messages.
func (a *Adapter) where() string {
	if a.Dir == "" {
		return ""
	}
	return "adapter " + a.Dir + ": "
}
