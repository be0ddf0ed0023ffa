package events

import (
	"encoding/binary"
	"errors"
	"math"
)

// The messages of TensorBoard that a log of scalars needs
// (tensorboard/compat/proto/{event,summary}.proto), encoded by hand: a field
// is a key (number<<3 | wire type) and a value.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5

	eventWallTime    = 1<<3 | wire64
	eventStep        = 2<<3 | wireVarint
	eventFileVersion = 3<<3 | wireBytes
	eventSummary     = 5<<3 | wireBytes
	eventSessionLog  = 7<<3 | wireBytes

	summaryValue    = 1<<3 | wireBytes
	valueTag        = 1<<3 | wireBytes
	valueSimple     = 2<<3 | wire32
	sessionStatus   = 1<<3 | wireVarint
	sessionStarting = 1 // SessionLog.START
)

func appendEvent(b []byte, wallTime float64, step int64) []byte {
	b = append(b, eventWallTime)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(wallTime))
	if step == 0 {
		return b // the default is not written
	}
	b = append(b, eventStep)
	return binary.AppendUvarint(b, uint64(step))
}

func appendBytes(b []byte, key byte, data []byte) []byte {
	b = append(b, key)
	b = binary.AppendUvarint(b, uint64(len(data)))
	return append(b, data...)
}

// versionEvent returns the first event of every event file.
func versionEvent(wallTime float64) []byte {
	return appendBytes(appendEvent(nil, wallTime, 0), eventFileVersion, []byte("brain.Event:2"))
}

// startEvent returns the event that makes TensorBoard discard this step and later ones.
func startEvent(wallTime float64, step int64) []byte {
	return appendBytes(appendEvent(nil, wallTime, step), eventSessionLog, []byte{sessionStatus, sessionStarting})
}

func scalarsEvent(wallTime float64, r Record) []byte {
	var summary []byte
	for _, s := range r.Scalars {
		value := appendBytes(nil, valueTag, []byte(tag(s.Name)))
		value = append(value, valueSimple)
		value = binary.LittleEndian.AppendUint32(value, math.Float32bits(float32(s.Value)))
		summary = appendBytes(summary, summaryValue, value)
	}
	return appendBytes(appendEvent(nil, wallTime, r.Step), eventSummary, summary)
}

var errEvent = errors.New("not an event of TensorBoard")

// parseEvent returns the step of an encoded event, 0 if it has none, and whether it holds scalars rather than the
// version or a session.
func parseEvent(b []byte) (step int64, scalars bool, err error) {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false, errEvent
		}
		b = b[n:]
		size := 0
		switch key & 7 {
		case wireVarint:
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return 0, false, errEvent
			}
			if key == eventStep {
				step = int64(v)
			}
			size = n
		case wire64:
			size = 8
		case wire32:
			size = 4
		case wireBytes:
			v, n := binary.Uvarint(b)
			if n <= 0 || v > uint64(len(b)) {
				return 0, false, errEvent
			}
			scalars = scalars || key == eventSummary
			size = n + int(v)
		default:
			return 0, false, errEvent
		}
		if size > len(b) {
			return 0, false, errEvent
		}
		b = b[size:]
	}
	return step, scalars, nil
}
