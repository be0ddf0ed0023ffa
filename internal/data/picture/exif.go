package picture

import (
	"bytes"
	"encoding/binary"
	"image"
)

// upright is the EXIF orientation of an image that needs no rotation.
const upright = 1

// orientation returns the EXIF orientation of an image, 1 to 8, or upright if there is none.
func orientation(format string, file []byte) int {
	tiff := file[:0]
	switch format {
	case "jpeg":
		tiff = exifOfJPEG(file)
	case "png":
		tiff = chunk(file, len(pngHead), binary.BigEndian, 4, "eXIf")
	case "webp":
		tiff = chunk(file, len("RIFF....WEBP"), binary.LittleEndian, 0, "EXIF")
	}
	return orientationOf(bytes.TrimPrefix(tiff, []byte(exifHead)))
}

const (
	exifHead = "Exif\x00\x00"
	pngHead  = "\x89PNG\r\n\x1a\n"
)

// exifOfJPEG returns the EXIF segment, or nil if there is none.
func exifOfJPEG(file []byte) []byte {
	for at := 2; at+4 <= len(file) && file[at] == 0xff; {
		marker, size := file[at+1], int(binary.BigEndian.Uint16(file[at+2:]))
		if marker == 0xda || size < 2 || at+2+size > len(file) { // pixel data starts here
			break
		}
		if body := file[at+4 : at+2+size]; marker == 0xe1 && bytes.HasPrefix(body, []byte(exifHead)) {
			return body
		}
		at += 2 + size
	}
	return nil
}

// chunk returns the first chunk called name, or nil if there is none. PNG chunks have the size before the name and a
// checksum of the given number of bytes after the data; RIFF chunks have the name before the size and are padded to an
// even size.
func chunk(file []byte, at int, order binary.ByteOrder, checksum int, name string) []byte {
	for at+8 <= len(file) {
		kind, size := file[at:at+4], int64(order.Uint32(file[at+4:]))
		if checksum > 0 {
			kind, size = file[at+4:at+8], int64(order.Uint32(file[at:]))
		} else if string(kind) != name {
			size += size % 2
		}
		if at += 8; size > int64(len(file)-at) {
			break
		}
		if string(kind) == name {
			return file[at : at+int(size)]
		}
		at += int(size) + checksum
	}
	return nil
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

// turned returns the image with the orientation applied. An orientation tells to which sides the first row and the
// first column of the file belong.
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
