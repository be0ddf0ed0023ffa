package picture

import (
	"bytes"
	"encoding/binary"
	"image"
)

// upright is the orientation of a picture that lies as it is to be seen.
const upright = 1

// orientation is how a JPEG is to be turned, 1 to 8, by its EXIF data; upright where it
// does not say.
func orientation(jpeg []byte) int {
	for at := 2; at+4 <= len(jpeg) && jpeg[at] == 0xff; {
		marker, size := jpeg[at+1], int(binary.BigEndian.Uint16(jpeg[at+2:]))
		if marker == 0xda || size < 2 || at+2+size > len(jpeg) { // pixels begin
			break
		}
		if body := jpeg[at+4 : at+2+size]; marker == 0xe1 && bytes.HasPrefix(body, []byte("Exif\x00\x00")) {
			return orientationOf(body[6:])
		}
		at += 2 + size
	}
	return upright
}

// orientationOf reads the tag 0x0112 of the first directory of a TIFF header.
func orientationOf(tiff []byte) int {
	if len(tiff) < 8 {
		return upright
	}
	var order binary.ByteOrder = binary.LittleEndian
	if bytes.HasPrefix(tiff, []byte("MM")) {
		order = binary.BigEndian
	}
	at := int64(order.Uint32(tiff[4:]))
	if at+2 > int64(len(tiff)) {
		return upright
	}
	for n := int64(order.Uint16(tiff[at:])); n > 0; n-- {
		entry := at + 2 + 12*(n-1)
		if entry+12 > int64(len(tiff)) || order.Uint16(tiff[entry:]) != 0x0112 {
			continue
		}
		if o := int(order.Uint16(tiff[entry+8:])); o >= 1 && o <= 8 {
			return o
		}
	}
	return upright
}

// turned is a picture as an orientation has it: the numbers say which way the first row
// and the first column of the file go.
func turned(img image.Image, orientation int) image.Image {
	if orientation == upright {
		return img
	}
	b := img.Bounds()
	w, h := b.Dx(), b.Dy()
	size := image.Rect(0, 0, w, h)
	if orientation > 4 {
		size = image.Rect(0, 0, h, w)
	}
	out := image.NewRGBA(size)
	for y := range h {
		for x := range w {
			tx, ty := x, y
			switch orientation {
			case 2:
				tx = w - 1 - x
			case 3:
				tx, ty = w-1-x, h-1-y
			case 4:
				ty = h - 1 - y
			case 5:
				tx, ty = y, x
			case 6:
				tx, ty = h-1-y, x
			case 7:
				tx, ty = h-1-y, w-1-x
			case 8:
				tx, ty = y, w-1-x
			}
			out.Set(tx, ty, img.At(b.Min.X+x, b.Min.Y+y))
		}
	}
	return out
}
