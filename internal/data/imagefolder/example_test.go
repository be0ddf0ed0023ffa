package imagefolder_test

import (
	"context"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/data/imagefolder"
)

func Example() {
	dir, err := os.MkdirTemp("", "imagefolder")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"001.png", "002.png"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			panic(err)
		}
		if err := png.Encode(f, image.NewGray(image.Rect(0, 0, 64, 48))); err != nil {
			panic(err)
		}
		if err := f.Close(); err != nil {
			panic(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "001.txt"), []byte("a grey picture"), 0o600); err != nil {
		panic(err)
	}
	folder, err := imagefolder.Read(context.Background(), dir, imagefolder.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(folder.Images, "images,", folder.Pairs, "with a caption")
	for _, p := range folder.Problems {
		fmt.Printf("%v: %s: %s\n", p.Kind, filepath.Base(p.File), p.Detail)
	}
	// Output:
	// 2 images, 1 with a caption
	// missing caption: 002.png: expected 002.txt
}
