package picture

import (
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func load(t testing.TB, name string) image.Image {
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	img, err := Decode(raw)
	require.NoError(t, err, name)
	return img
}

// TestGoldens: pictures of all kinds are what Pillow makes of them; decoders of JPEG round
// in more than one way.
func TestGoldens(t *testing.T) {
	raw, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var golden map[string]map[string][]int
	require.NoError(t, json.Unmarshal(raw, &golden))
	require.Len(t, golden, 18)
	for name, sizes := range golden {
		img, off := load(t, name), 0.01
		if filepath.Ext(name) == ".jpg" {
			off = 2.01
		}
		for size, want := range sizes {
			var s Size
			_, err := fmt.Sscanf(size, "%dx%d", &s.Width, &s.Height)
			require.NoError(t, err)
			got := Cover(img, s)
			step := 1
			if s.Width*s.Height >= 1000 {
				step = 7
			}
			i := 0
			for y := 0; y < s.Height; y += step {
				for x := 0; x < s.Width; x += step {
					for c := range 3 {
						pixel := float64(got[(c*s.Height+y)*s.Width+x]+1) * 127.5
						require.InDelta(t, want[i], pixel, off, "%s at %s: %d, %d, %d", name, size, x, y, c)
						i++
					}
				}
			}
			require.Equal(t, len(want), i)
		}
	}
}

func TestBadPictures(t *testing.T) {
	for says, data := range map[string][]byte{
		"unknown format": []byte("GIF89a"),
		"not a picture":  {},
		"unexpected EOF": []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR"),
	} {
		_, err := Decode(data)
		require.ErrorIs(t, err, ErrPicture)
		assert.ErrorContains(t, err, says)
	}
	raw, err := os.ReadFile("testdata/rgb.png")
	require.NoError(t, err)
	_, err = Decode(raw[:len(raw)/2])
	require.ErrorIs(t, err, ErrPicture)
}

func TestCoverOfAnySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 40).Draw(t, "width"), rapid.IntRange(1, 40).Draw(t, "height")
		s := Size{rapid.IntRange(1, 40).Draw(t, "to"), rapid.IntRange(1, 40).Draw(t, "by")}
		img := image.NewGray(image.Rect(3, 5, 3+w, 5+h)) // not at the origin
		for i := range img.Pix {
			img.Pix[i] = 200
		}
		out := Cover(img, s)
		if len(out) != 3*s.Width*s.Height {
			t.Fatal(len(out))
		}
		for _, x := range out {
			if math.Abs(float64(x)-(200/127.5-1)) > 1e-2 {
				t.Fatal(x)
			}
		}
	})
}

func TestBuckets(t *testing.T) {
	b, err := NewBuckets(1024, 32)
	require.NoError(t, err)
	for size, want := range map[Size]Size{
		{1024, 1024}: {1024, 1024},
		{512, 512}:   {1024, 1024},
		{1920, 1080}: {1344, 768},
		{1080, 1920}: {768, 1344},
		{4000, 3000}: {1184, 864},
		{10, 1000}:   {512, 2048},
	} {
		assert.Equal(t, want, b.Nearest(size), size)
	}
	for _, c := range []struct{ side, multiple int }{{0, 16}, {15, 16}, {64, 0}, {1 << 17, 16}} {
		_, err := NewBuckets(c.side, c.multiple)
		require.ErrorIs(t, err, ErrSize)
	}
	b, err = NewBuckets(16, 16)
	require.NoError(t, err)
	assert.Equal(t, []Size{{16, 16}}, b.Sizes())
}

// Buckets have about the same area and sides that are multiples, and no other bucket is nearer to the shape of an
// image.
func TestBucketsOfAnySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		multiple := rapid.SampledFrom([]int{1, 8, 16, 32}).Draw(t, "multiple")
		side := rapid.IntRange(multiple, 400).Draw(t, "side")
		b, err := NewBuckets(side, multiple)
		if err != nil {
			t.Fatal(err)
		}
		of := Size{rapid.IntRange(1, 3000).Draw(t, "width"), rapid.IntRange(1, 3000).Draw(t, "height")}
		got := b.Nearest(of)
		off := func(s Size) float64 {
			return math.Abs(math.Log(float64(s.Width) / float64(s.Height) / (float64(of.Width) / float64(of.Height))))
		}
		for _, s := range b.Sizes() {
			if s.Width%multiple != 0 || s.Height%multiple != 0 || s.Width*s.Height > side*side || s.Width < multiple || s.Height < multiple {
				t.Fatalf("bucket %v of %d by %d", s, side, multiple)
			}
			if off(s) < off(got)-1e-6 {
				t.Fatalf("%v is nearer to %v than %v", s, of, got)
			}
		}
	})
}

func FuzzOrientation(f *testing.F) {
	for i := 1; i <= 8; i++ {
		raw, err := os.ReadFile(fmt.Sprintf("testdata/turned%d.jpg", i))
		require.NoError(f, err)
		require.Equal(f, i, orientation("jpeg", raw))
		f.Add(raw)
	}
	for _, name := range []string{"turned6.png", "turned6.webp"} {
		raw, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(f, err)
		require.Equal(f, 6, orientation(filepath.Ext(name)[1:], raw))
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, format := range []string{"jpeg", "png", "webp", "gif"} {
			o := orientation(format, raw)
			require.True(t, o >= 1 && o <= 8)
		}
	})
}

func ExampleCover() {
	img := image.NewNRGBA(image.Rect(0, 0, 200, 100)) // transparent
	for y := range 100 {
		for x := range 100 {
			img.Set(x, y, color.Black)
		}
	}
	buckets, err := NewBuckets(64, 16)
	if err != nil {
		fmt.Println(err)
		return
	}
	size := buckets.Nearest(SizeOf(img))
	values := Cover(img, size)
	fmt.Println(size, len(values), values[0], values[size.Width-1])
	// Output: 80×48 11520 -1 1
}
