// Command pictures is being written.
package main

import (
	"image"
	"image/png"
	"os"

	"github.com/lorafuse/lorafuse/diffusion"
)

func main() {
	var rows [][]image.Image
	for s := range shapes {
		var row []image.Image
		for c := range colours {
			p := picture{colour: c, shape: s}.place(s*8 + c)
			row = append(row, p.paint(plain), p.paint(neon))
		}
		rows = append(rows, row)
	}
	f, _ := os.Create("/tmp/shapes.png")
	png.Encode(f, diffusion.Grid(rows))
	f.Close()
	if err := begin("/tmp/base"); err != nil {
		panic(err)
	}
}
