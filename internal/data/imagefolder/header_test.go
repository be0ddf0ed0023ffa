package imagefolder

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func readHeader(data []byte) (Header, error) {
	return ReadHeader(bytes.NewReader(data), int64(len(data)))
}

// golden lists the images of scripts/make_image_goldens.py.
func golden(t testing.TB) (images map[string][]byte, want map[string]Header) {
	dir := filepath.Join("testdata", "images")
	raw, err := os.ReadFile(filepath.Join(dir, "sizes.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &want))
	require.Len(t, want, 17)
	images = map[string][]byte{}
	for name := range want {
		images[name], err = os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
	}
	return images, want
}

// Sizes match Pillow.
func TestHeaders(t *testing.T) {
	images, want := golden(t)
	for name, data := range images {
		h, err := readHeader(data)
		require.NoError(t, err, name)
		require.Equal(t, name == "animated.webp", h.Animated, name)
		h.Animated = false
		require.Equal(t, want[name], h, name)
		h, err = readHeader(append(bytes.Clone(data), "something behind it"...))
		require.NoError(t, err, name)
		h.Animated = false
		require.Equal(t, want[name], h, name)
	}
}

// A truncated image is never complete, whichever byte it ends at. (The last ones of some are padding.)
func TestPrefixes(t *testing.T) {
	images, _ := golden(t)
	for name, data := range images {
		for n := range len(data) {
			_, err := readHeader(data[:n])
			require.ErrorIs(t, err, ErrImage, "%s: the first %d of %d bytes", name, n, len(data))
		}
	}
}

func TestBadHeaders(t *testing.T) {
	images, _ := golden(t)
	change := func(name string, at int, to ...byte) []byte {
		data := bytes.Clone(images[name])
		copy(data[at:], to)
		return data
	}
	scan := bytes.Index(images["baseline.jpg"], []byte("\xff\xda"))
	for _, c := range []struct {
		name string
		data []byte
		says string
	}{
		{"empty", nil, "the file is empty"},
		{"a GIF", []byte("GIF89a\x01\x00\x01\x00"), `begins with "GIF8"`},
		{"text", []byte("x"), `begins with "x"`},
		{"a PNG of another length", change("rgb.png", 11, 12), "png: invalid format"},
		{"a PNG of no pixels", noPixels(images["rgb.png"]), "non-positive dimension"},
		{"a chunk beyond the end", change("rgb.png", 33, 0x7f), "the file is cut short"},
		{"a RIFF of sound", []byte("RIFF\x24\x00\x00\x00WAVEfmt "), `begins with "RIFF"`},
		{"a WebP of nothing", []byte("RIFF\x04\x00\x00\x00WEBP"), "cut short"},
		{"a WebP of an unknown kind", change("lossy.webp", 12, 'A', 'B', 'C', 'D'), `found "ABCD", expected a frame`},
		{"a WebP without a start code", change("lossy.webp", 23, 0), `found "VP8 ", expected a frame`},
		{"a WebP without a signature", change("lossless.webp", 20, 0), `found "VP8L", expected a frame`},
		{"a WebP of no width", change("lossy.webp", 26, 0, 0), "0 × 20 pixels"},
		{"a JPEG that ends early", change("baseline.jpg", scan, 0xff, 0xd9), "no pixels"},
		{"a JPEG with rubbish", change("baseline.jpg", scan, 0), "expected the start of a segment"},
		{"a JPEG without pixels", images["baseline.jpg"][:scan], "cut short"},
		{"a JPEG with a preview, cut short", images["preview.jpg"][:len(images["preview.jpg"])-2], "cut short"},
	} {
		_, err := readHeader(c.data)
		require.ErrorIs(t, err, ErrImage, c.name)
		require.ErrorContains(t, err, c.says, c.name)
	}
	// Fill bytes between segments are allowed.
	padded := bytes.Clone(images["baseline.jpg"][:scan])
	padded = append(append(padded, 0xff, 0xff, 0xff), images["baseline.jpg"][scan:]...)
	_, err := readHeader(padded)
	require.NoError(t, err)
	// The end is found across the border of two reads, and far from the end.
	for _, behind := range []int{0, 64<<10 - 1, 64 << 10, 64<<10 + 1, 200 << 10} {
		_, err := readHeader(append(bytes.Clone(images["baseline.jpg"]), make([]byte, behind)...))
		require.NoError(t, err, behind)
		data := images["baseline.jpg"]
		_, err = readHeader(append(bytes.Clone(data[:len(data)-2]), make([]byte, behind)...))
		require.ErrorIs(t, err, ErrImage, behind)
	}
}

// noPixels returns a PNG with a width of 0 and a valid checksum.
func noPixels(data []byte) []byte {
	data = bytes.Clone(data)
	copy(data[16:], []byte{0, 0, 0, 0})
	binary.BigEndian.PutUint32(data[29:], crc32.ChecksumIEEE(data[12:29]))
	return data
}

// failing fails to read.
type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestReadError(t *testing.T) {
	broken := errors.New("input/output error")
	_, err := ReadHeader(failing{broken}, 10)
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, ErrImage)
}

// FuzzReadHeader: ReadHeader fails only with ErrImage, and agrees with the decoder about the size of a PNG.
func FuzzReadHeader(f *testing.F) {
	images, _ := golden(f)
	for _, data := range images {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := readHeader(data)
		if err != nil {
			require.ErrorIs(t, err, ErrImage)
			return
		}
		require.Positive(t, h.Width)
		require.Positive(t, h.Height)
		if h.Format == "png" {
			c, err := png.DecodeConfig(io.LimitReader(bytes.NewReader(data), 1<<20))
			require.NoError(t, err)
			require.Equal(t, Header{Format: "png", Width: c.Width, Height: c.Height}, h)
		}
	})
}
