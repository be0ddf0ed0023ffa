package dialects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/lora"
)

// metadataKey is the metadata key under which diffusers stores PEFT's configuration in
// a file: JSON whose keys begin with the name of the pipeline component.
const (
	metadataKey = "lora_adapter_metadata"
	component   = "transformer."
)

// parseMetadata returns the configuration in the metadata of a file, or nil if the file
// has none.
func parseMetadata(metadata map[string]string) (*lora.Config, error) {
	text, ok := metadata[metadataKey]
	if !ok {
		return nil, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("%w: %s in the metadata: %w", lora.ErrConfig, metadataKey, err)
	}
	own := map[string]json.RawMessage{"peft_type": json.RawMessage(`"LORA"`)}
	found := false
	for key, value := range all {
		if name, ok := strings.CutPrefix(key, component); ok {
			own[name] = value
			found = true
		}
	}
	if !found {
		return nil, nil
	}
	data, err := json.Marshal(own)
	if err != nil {
		return nil, fmt.Errorf("%w: %s in the metadata: %w", lora.ErrConfig, metadataKey, err)
	}
	c, err := lora.ParseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%w (%s in the metadata)", err, metadataKey)
	}
	return c, nil
}

// formatMetadata formats a configuration as diffusers does: PEFT's, with the pipeline
// component in front of each key. Patterns keep their order, since it affects their
// meaning.
func formatMetadata(c *lora.Config) (string, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(c.JSON(), &all); err != nil {
		return "", err
	}
	var b bytes.Buffer
	for i, key := range slices.Sorted(maps.Keys(all)) {
		b.WriteString([]string{"{\n", ",\n"}[min(i, 1)])
		fmt.Fprintf(&b, "  %q: %s", component+key, all[key])
	}
	b.WriteString("\n}")
	return b.String(), nil
}
