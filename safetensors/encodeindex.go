package safetensors

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// indexStyle describes how a library formats the index of a model.
type indexStyle struct {
	sorted     bool // sort tensors by name; otherwise keep the order of the shards
	parameters bool // write the number of elements in addition to the number of bytes
	newline    bool // end the last line
}

// indexStyle returns the style of the library that uses the stem, so that our
// index is identical to that library's: transformers 5, diffusers 0.42, and for
// other stems save_torch_state_dict of huggingface_hub 2.
func (n modelName) indexStyle() indexStyle {
	switch n.stem {
	case TransformersStem:
		return indexStyle{sorted: true, parameters: true, newline: true}
	case DiffusersStem:
		return indexStyle{sorted: true, newline: true}
	}
	return indexStyle{}
}

// encodeIndex writes the index of shards with the given names. It escapes all
// non-ASCII characters, as Python's json.dumps with an indent of 2 does.
func encodeIndex(shards [][]Entry, names []string, style indexStyle) ([]byte, error) {
	type place struct{ tensor, shard string }
	var places []place
	var bytes, parameters int64
	estimate := 200
	for i, entries := range shards {
		for j := range entries {
			e := &entries[j]
			size, err := e.Size()
			if err != nil {
				return nil, err
			}
			bytes += size
			count := int64(1)
			for _, d := range e.Shape {
				count *= int64(d)
			}
			parameters += count
			places = append(places, place{e.Name, names[i]})
			estimate += len(e.Name) + len(names[i]) + len("\n    \"\": \"\",")
		}
	}
	if style.sorted {
		slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.tensor, b.tensor) })
	}
	b := append(make([]byte, 0, estimate), "{\n  \"metadata\": {\n"...)
	if style.parameters {
		b = fmt.Appendf(b, "    \"total_parameters\": %d,\n", parameters)
	}
	b = fmt.Appendf(b, "    \"total_size\": %d\n  },\n  \"weight_map\": {", bytes)
	for i, p := range places {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n    "...)
		b = appendASCIIString(b, p.tensor)
		b = append(b, ": "...)
		b = appendASCIIString(b, p.shard)
	}
	b = append(b, "\n  }\n}"...)
	if style.newline {
		b = append(b, '\n')
	}
	if len(b) > maxIndex {
		return nil, &FormatError{Rule: ErrIndex, Found: byteCount(uint64(len(b))), Expected: "at most " + strconv.Itoa(maxIndex)}
	}
	return b, nil
}

// appendASCIIString appends s like appendJSONString, but escapes everything
// except printable ASCII, in UTF-16, as Python does.
func appendASCIIString(b []byte, s string) []byte {
	start := len(b)
	b = appendJSONString(b, s)
	if !slices.ContainsFunc(b[start:], func(c byte) bool { return c >= 0x7f }) {
		return b
	}
	escaped := slices.Clone(b[start:])
	b = b[:start]
	for len(escaped) > 0 {
		r, size := utf8.DecodeRune(escaped)
		if r < 0x7f {
			b = append(b, byte(r))
		} else if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		} else {
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		escaped = escaped[size:]
	}
	return b
}
