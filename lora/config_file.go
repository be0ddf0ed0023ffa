package lora

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// ReadConfig reads the adapter_config.json of an adapter folder. The result is
// not validated yet.
func ReadConfig(dir string) (*Config, error) {
	path := filepath.Join(dir, ConfigFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("lora: read adapter: %w", err)
	}
	return parseFile(path, data)
}

// parseFile parses the contents of the file at path.
func parseFile(path string, data []byte) (*Config, error) {
	c, err := ParseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, path)
	}
	return c, nil
}

// ParseConfig parses an adapter_config.json as PEFT does. Only peft_type is required.
// Missing keys get their defaults; keys that PEFT 0.21.2 does not know are named in
// Warnings and dropped. A value of the wrong type fails with ErrConfig.
func ParseConfig(data []byte) (*Config, error) {
	v, err := parseJSON(data)
	if err != nil {
		return nil, fmt.Errorf("lora: %s: %w: %w", ConfigFile, ErrConfig, err)
	}
	o, ok := v.(object)
	if !ok {
		return nil, configError("", "%w", wrongType("an object", v))
	}
	if _, ok := o.get("peft_type"); !ok {
		if isMLX(data) {
			return nil, configError("lora_parameters", "found an adapter of MLX, expected one of PEFT: lorafuse adapter convert FOLDER OUTPUT --model MODEL --to peft converts it")
		}
		return nil, configError("peft_type", "the key is missing: this is no adapter_config.json of PEFT")
	}
	peftType, _ := o.get("peft_type")
	c := newConfig(peftType)
	c.read = o
	fields := keysOf(c.PeftType)
	for _, m := range o {
		i, known := slices.BinarySearchFunc(fields, m.key, func(f field, key string) int {
			return strings.Compare(f.key, key)
		})
		if !known {
			c.Warnings = append(c.Warnings, unknownKey(m.key, fields))
			continue
		}
		if err := decode(fields[i].at(c), m.value); err != nil {
			return nil, configError(m.key, "%w", err)
		}
	}
	return c, nil
}

func unknownKey(key string, fields []field) string {
	if key == "runtime_config" {
		return "runtime_config is ignored: it is no property of an adapter"
	}
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.key
	}
	return fmt.Sprintf("unknown key %q is ignored%s", key, suggest.DidYouMean(key, known))
}

// JSON returns c as PEFT writes it: all keys, sorted, indented by two
// spaces, ASCII only, no line feed at the end. Target and excluded modules are
// sorted; rank and alpha patterns keep their order, on which their meaning
// depends. A value that was read and not changed keeps the form that it had.
func (c *Config) JSON() []byte {
	var o object
	for _, f := range keysOf(c.PeftType) {
		o = append(o, member{f.key, c.encodeField(f)})
	}
	return appendJSON(nil, o, 0)
}

func (c *Config) encodeField(f field) any {
	now := f.at(c)
	if _, isSet := now.(*ModuleSet); !isSet {
		if v, ok := c.read.get(f.key); ok {
			then := f.at(newConfig(c.PeftType))
			if decode(then, v) == nil && reflect.DeepEqual(now, then) {
				return keepOrder(now, v)
			}
		}
	}
	return encode(now)
}

// keepOrder marks an object as ordered if its order has a meaning.
func keepOrder(field any, v any) any {
	switch field.(type) {
	case *RankPattern, *AlphaPattern:
		if o, ok := v.(object); ok {
			return ordered(o)
		}
	}
	return v
}
