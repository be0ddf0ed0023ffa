package weights

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Index is what the index of a sharded model says. What the shards really hold
// may be something else: see [Set.Disagreements].
type Index struct {
	Path string
	// Shard is the file by the name of the tensor.
	Shard map[string]string
	// TotalSize is the size of all tensors in bytes, nil where the index does
	// not say.
	TotalSize *int64
}

// indexed is the path that an index has the name of ("model.safetensors" of
// "model.safetensors.index.json", and with a variant of
// "model.safetensors.index.fp16.json"), empty for other files.
func indexed(path string) string {
	name, _, ok := strings.Cut(filepath.Base(path), ".index.")
	if !ok || !strings.HasSuffix(path, ".json") {
		return ""
	}
	return filepath.Join(filepath.Dir(path), name)
}

// readIndex reads an index that [safetensors.OpenIndexOf] has found to be right.
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

// totalSize is nil where the metadata are of another kind: they are for others.
// Some writers have made the size a float.
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

// Disagreements says where the index and the shards do not agree: names that
// the index lists and no shard holds, tensors that lie in another shard than it
// says or that it does not list, and a total size that is not that of the
// tensors. It is empty where there is no index.
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

// Name is the path of a file of the set within the folder of its index, with
// slashes; its base name where there is no index.
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
