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

// Text is something that a PNG file says of itself, such as how it was made. Keys have at
// most 79 letters of ASCII.
type Text struct{ Key, Value string }

// WritePNG writes a picture as the PNG file at path, whole or not at all, with texts in
// chunks of their own: tEXt, or iTXt where a text is not of Latin-1 (PNG, third edition,
// section 11.3.3).
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

// pngHeader is the length of the signature and of the chunk IHDR, which begin a PNG.
const pngHeader = 8 + 12 + 13

func (t Text) chunk() []byte {
	value := strings.ReplaceAll(strings.ToValidUTF8(t.Value, "\uFFFD"), "\x00", " ")
	if latin, ok := latin1(value); ok {
		return pngChunk("tEXt", t.Key+"\x00"+latin)
	}
	// Not compressed, of no language, and not translated.
	return pngChunk("iTXt", t.Key+"\x00\x00\x00\x00\x00"+value)
}

// latin1 is a text in Latin-1, if it can be.
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

// pngChunk is a chunk: its length, its kind, what it holds, and a checksum of the two.
func pngChunk(kind, content string) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(content)))
	out = append(out, kind+content...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:]))
}
