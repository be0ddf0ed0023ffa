package trainer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// MomentsFile is the file of a checkpoint with the optimizer state.
const MomentsFile = "optimizer.safetensors"

// Checkpoint describes a folder with an adapter, the optimizer state and a record in JSON.
type Checkpoint struct {
	Adapter func(dir string) error // writes the files of the adapter
	Moments Moments                // nil: the folder has none
	Record  string                 // name of the file
	// Value returns the content of the record. sums are the checksums of the files with
	// tensors.
	Value func(sums map[string]string) any
}

// Save writes a checkpoint and replaces an existing one. A kill at any moment leaves either of
// them whole.
func (c Checkpoint) Save(path string) error {
	return fsatomic.ReplaceDir(path, func(tmp string) error {
		if err := c.Adapter(tmp); err != nil {
			return err
		}
		if c.Moments != nil {
			if err := c.Moments.save(filepath.Join(tmp, MomentsFile)); err != nil {
				return err
			}
		}
		sums, err := fsatomic.Sums(tmp, tensorFiles(c.Moments != nil)...)
		if err != nil {
			return err
		}
		raw, err := json.MarshalIndent(c.Value(sums), "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(tmp, c.Record), append(raw, '\n'), 0o666)
	})
}

// tensorFiles returns the names of the files with tensors.
func tensorFiles(moments bool) []string {
	if moments {
		return []string{lora.WeightsFile, MomentsFile}
	}
	return []string{lora.WeightsFile}
}

// CheckSums compares the files of a checkpoint with the sums in its record.
func CheckSums(dir string, moments bool, recorded map[string]string) error {
	sums, err := fsatomic.Sums(dir, tensorFiles(moments)...)
	if err != nil {
		return err
	}
	if changed := Differences(recorded, sums); len(changed) > 0 {
		return fmt.Errorf("damaged: the checksum of %s", strings.Join(changed, "; "))
	}
	return nil
}

// Differences describes the keys whose values differ.
func Differences(was, now map[string]string) []string {
	all := map[string]string{}
	maps.Copy(all, was)
	maps.Copy(all, now)
	var out []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if was[k] != now[k] {
			out = append(out, fmt.Sprintf("%s was %s, is now %s", k, cmp.Or(was[k], "not given"), cmp.Or(now[k], "not given")))
		}
	}
	return out
}

func (m Moments) save(path string) error {
	var entries []safetensors.Entry
	for _, name := range slices.Sorted(maps.Keys(m)) {
		x := m[name]
		d, err := safetensors.ParseDType(x.DType.String())
		if err != nil {
			return err
		}
		entries = append(entries, safetensors.Entry{Name: name, DType: d, Shape: x.Shape, Data: x.Data})
	}
	return safetensors.WriteFile(path, entries, nil)
}

// ReadMoments reads the optimizer state of a checkpoint.
func ReadMoments(dir string) (Moments, error) {
	f, err := safetensors.Open(filepath.Join(dir, MomentsFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	moments := Moments{}
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		if err != nil {
			return nil, err
		}
		d, err := tensor.ParseDType(v.DType.String())
		if err != nil {
			return nil, err
		}
		x, err := tensor.New(d, v.Shape...)
		if err == nil {
			err = v.WithBytes(func(data []byte) error { copy(x.Data, data); return nil })
		}
		if err != nil {
			return nil, err
		}
		moments[name] = x
	}
	return moments, nil
}
