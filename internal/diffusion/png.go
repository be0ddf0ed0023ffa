package diffusion

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/png"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// Text is a metadata entry of a PNG file, such as the generation parameters. Keys have at
// most 79 ASCII characters.
type Text struct{ Key, Value string }

// WritePNG writes an image to path as PNG, atomically, with texts as metadata. It uses tEXt
// chunks, or iTXt for texts outside Latin-1 (PNG, third edition, section 11.3.3).
func WritePNG(path string, m image.Image, texts ...Text) error {
	var file bytes.Buffer
	if err := png.Encode(&file, m); err != nil {
		return fmt.Errorf("diffusion: %s: %w", path, err)
	}
	var chunks []byte
	for _, t := range texts {
		chunks = append(chunks, t.chunk()...)
	}
	return fsatomic.WriteFile(path, slices.Insert(file.Bytes(), pngHeader, chunks...))
}

// pngHeader is the length of the signature and the IHDR chunk at the beginning of a PNG.
const pngHeader = 8 + 12 + 13

func (t Text) chunk() []byte {
	value := strings.ReplaceAll(strings.ToValidUTF8(t.Value, "\uFFFD"), "\x00", " ")
	if latin, ok := latin1(value); ok {
		return pngChunk("tEXt", t.Key+"\x00"+latin)
	}
	// Uncompressed, without language and translated keyword.
	return pngChunk("iTXt", t.Key+"\x00\x00\x00\x00\x00"+value)
}

// latin1 encodes a text in Latin-1 and reports whether that is possible.
func latin1(text string) (string, bool) {
	var out []byte
	for _, r := range text {
		if r > 0xff {
			return "", false
		}
		out = append(out, byte(r))
	}
	return string(out), true
}

// pngChunk returns a chunk: length, type, content, and a checksum of the latter two.
func pngChunk(kind, content string) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(content)))
	out = append(out, kind+content...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:]))
}
