package events

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/png"
)

// Image is a picture of a step.
type Image struct {
	Step    int64
	Tag     string // name in TensorBoard, shared by all steps
	Picture image.Image
}

// The fields of an image of TensorBoard (tensorboard/compat/proto/summary.proto).
const (
	valueImage      = 4<<3 | wireBytes
	imageHeight     = 1<<3 | wireVarint
	imageWidth      = 2<<3 | wireVarint
	imageColorspace = 3<<3 | wireVarint
	imageEncoded    = 4<<3 | wireBytes

	rgb = 3 // channels
)

// WriteImage appends a picture, as PNG. Errors: ErrRecord for one that is too large.
func (tb *TensorBoard) WriteImage(x Image) error {
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, x.Picture); err != nil {
		return err
	}
	if encoded.Len() > largestFrame/2 {
		return fmt.Errorf("%w: the picture %q of step %d has %d bytes as PNG, expected %d at most", ErrRecord, x.Tag, x.Step, encoded.Len(), largestFrame/2)
	}
	return tb.append(imageEvent(tb.seconds(), x, encoded.Bytes()))
}

func imageEvent(wallTime float64, x Image, encoded []byte) []byte {
	size := x.Picture.Bounds().Size()
	var picture []byte
	for _, f := range []struct {
		key   byte
		value int
	}{{imageHeight, size.Y}, {imageWidth, size.X}, {imageColorspace, rgb}} {
		picture = append(picture, f.key)
		picture = binary.AppendUvarint(picture, uint64(f.value))
	}
	picture = appendBytes(picture, imageEncoded, encoded)
	value := appendBytes(nil, valueTag, []byte(x.Tag))
	value = appendBytes(value, valueImage, picture)
	return appendBytes(appendEvent(nil, wallTime, x.Step), eventSummary, appendBytes(nil, summaryValue, value))
}
