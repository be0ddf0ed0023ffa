package weights

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Index is the index of a sharded model. The contents of the shards may differ:
// see [Set.Disagreements].
type Index struct {
	Path string
	// Shard maps the name of a tensor to its file.
	Shard map[string]string
	// TotalSize is the size of all tensors in bytes, nil if the index does not
	// contain it.
	TotalSize *int64
}

// indexed returns the path of the file that an index replaces
// ("model.safetensors" for "model.safetensors.index.json" and, with a variant,
// for "model.safetensors.index.fp16.json"). It is empty for other files.
func indexed(path string) string {
	name, _, ok := strings.Cut(filepath.Base(path), ".index.")
	if !ok || !strings.HasSuffix(path, ".json") {
		return ""
	}
	return filepath.Join(filepath.Dir(path), name)
}

// readIndex reads an index that [safetensors.OpenIndexOf] has validated.
func readIndex(path string) (*Index, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	var content struct {
		Metadata json.RawMessage
		Shard    map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &content); err != nil {
		return nil, fmt.Errorf("weights: %s: %w", path, err)
	}
	return &Index{Path: path, Shard: content.Shard, TotalSize: totalSize(content.Metadata)}, nil
}

// totalSize returns nil if the metadata are of another form, which is not an
// error. Some writers store the size as a float.
func totalSize(metadata json.RawMessage) *int64 {
	var content struct {
		TotalSize json.Number `json:"total_size"`
	}
	if json.Unmarshal(metadata, &content) != nil {
		return nil
	}
	size, err := content.TotalSize.Float64()
	if whole := int64(size); err == nil && size >= 0 && size < 1<<53 && float64(whole) == size {
		return &whole
	}
	return nil
}

// Disagreements lists the differences between the index and the shards: names
// that no shard holds, tensors that are in another shard or missing from the
// index, and a total size that does not match the tensors. It is empty without
// an index.
func (s *Set) Disagreements() []string {
	if s.Index == nil {
		return nil
	}
	var found []string
	base := filepath.Base(s.Index.Path)
	size := int64(0)
	for _, f := range s.Files() {
		file := s.Name(f.Path())
		for _, name := range f.Names() {
			switch shard, ok := s.Index.Shard[name]; {
			case !ok:
				found = append(found, fmt.Sprintf("tensor %q of %s is not in %s", name, file, base))
			case filepath.Clean(filepath.FromSlash(shard)) != filepath.FromSlash(file):
				found = append(found, fmt.Sprintf("tensor %q lies in %s, %s says %s", name, file, base, shard))
			}
			if v, err := f.Lookup(name); err == nil {
				size += int64(v.Len())
			}
		}
	}
	for _, name := range s.Absent() {
		found = append(found, fmt.Sprintf("tensor %q is listed in %s, and %s does not hold it", name, base, s.Index.Shard[name]))
	}
	if total := s.Index.TotalSize; total != nil && *total != size {
		found = append(found, fmt.Sprintf("total_size is %d in %s, the tensors have %d bytes", *total, base, size))
	}
	return found
}

// Name returns the slash-separated path of a file of the set, relative to the
// folder of its index, or its base name if there is no index.
func (s *Set) Name(path string) string {
	if s.Index == nil {
		return filepath.Base(path)
	}
	name, err := filepath.Rel(filepath.Dir(s.Index.Path), path)
	if err != nil {
		return filepath.Base(path)
	}
	return filepath.ToSlash(name)
}
