package lora

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// Save writes an adapter folder that PEFT loads: adapter_model.safetensors with the
// given tensors, unchanged, and adapter_config.json. It creates the folder if necessary
// and keeps other files in it. The same arguments give the same bytes.
//
// Both files are completely written to disk before either is renamed, and a
// configuration never accompanies weights that it does not belong to: after a crash
// between the two renames, the folder has no configuration.
func Save(dir string, c *Config, tensors []Tensor) error {
	if err := c.Validate(); err != nil {
		return err
	}
	entries := make([]safetensors.Entry, len(tensors))
	for i, t := range tensors {
		d, err := fileDType(t.DType)
		if err != nil {
			return fmt.Errorf("lora: save %s: tensor %q: %w", dir, t.Key, err)
		}
		entries[i] = safetensors.Entry{Name: t.Key, DType: d, Shape: t.Shape, Data: t.Data}
	}
	if err := save(dir, entries, c.JSON()); err != nil {
		return fmt.Errorf("lora: save adapter: %w", err)
	}
	return nil
}

// metadata is PEFT's metadata of the file, which loaders require.
var metadata = map[string]string{"format": "pt"}

func save(dir string, entries []safetensors.Entry, config []byte) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		defer os.Remove(dir) // fails, as it should, once there is a file in it
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	configPath := filepath.Join(dir, ConfigFile)
	weights, err := fsatomic.Create(filepath.Join(dir, WeightsFile))
	if err != nil {
		return err
	}
	defer weights.Abort()
	if err := safetensors.Write(weights, entries, metadata); err != nil {
		return err
	}
	settings, err := fsatomic.Create(configPath)
	if err != nil {
		return err
	}
	defer settings.Abort()
	if _, err := settings.Write(config); err != nil {
		return err
	}

	old, err := os.ReadFile(configPath)
	replaced := err == nil && !bytes.Equal(old, config)
	if replaced {
		if err := os.Remove(configPath); err != nil {
			return err
		}
	}
	if err := weights.Commit(); err != nil {
		if replaced { // the old weights are still there
			fsatomic.WriteFile(configPath, old)
		}
		return err
	}
	return settings.Commit()
}

// fileDType returns the safetensors type of d.
func fileDType(d tensor.DType) (safetensors.DType, error) {
	return safetensors.ParseDType(d.String())
}
