package events

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The bytes are those of summary.proto: Summary{value: {tag, image: {height, width,
// colorspace, encoded_image_string}}}.
func TestImageEvent(t *testing.T) {
	got := imageEvent(0, Image{Step: 300, Tag: "t", Picture: image.NewNRGBA(image.Rect(0, 0, 200, 3))}, []byte("PNG"))
	want := []byte{0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0xAC, 0x02,
		0x2A, 19, 0x0A, 17, 0x0A, 1, 't',
		0x22, 12, 0x08, 3, 0x10, 0xC8, 0x01, 0x18, 3, 0x22, 3, 'P', 'N', 'G'}
	assert.Equal(t, want, got)
}

// Pictures are kept and cut as scalars are.
func TestImagesResume(t *testing.T) {
	dir := t.TempDir()
	picture := image.NewNRGBA(image.Rect(0, 0, 3, 2))
	picture.Set(1, 1, color.NRGBA{R: 200, A: 255})
	tb, err := openTensorBoard(dir, Fresh, at(1700000000))
	require.NoError(t, err)
	for _, step := range []int64{1, 2, 3} {
		require.NoError(t, tb.WriteImage(Image{Step: step, Tag: "samples", Picture: picture}))
	}
	require.NoError(t, tb.Close())
	steps, _ := scalarSteps(t, dir)
	assert.Equal(t, []int64{1, 2, 3}, steps)

	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	data, err := os.ReadFile(files[0])
	require.NoError(t, err)
	decoded, err := png.Decode(bytes.NewReader(data[bytes.Index(data, []byte("\x89PNG")):]))
	require.NoError(t, err)
	assert.Equal(t, color.NRGBA{R: 200, A: 255}, color.NRGBAModel.Convert(decoded.At(1, 1)))

	tb, err = openTensorBoard(dir, 2, at(1700000000))
	require.NoError(t, err)
	require.NoError(t, tb.Close())
	steps, _ = scalarSteps(t, dir)
	assert.Equal(t, []int64{1, 2}, steps)
}
