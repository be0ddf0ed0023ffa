package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrLoad: the device does not support the requested [LoadMode].
var ErrLoad = errors.New("cannot load weights by")

// LoadMode is the method that uploads weights from their files to a device with its own memory. A device that shares the
// host's memory uses them in place; auto and plain both mean that there.
type LoadMode uint8

const (
	// LoadAuto selects the fastest method for the first bytes among the supported ones.
	LoadAuto LoadMode = iota
	// LoadRing reads into a few slots of pinned memory, which the device copies
	// from while the next ones are filled.
	LoadRing
	// LoadRegister pins the pages of the mapped file, a window of them at a
	// time, for the device to copy from.
	LoadRegister
	// LoadPlain has the driver copy from the mapped file.
	LoadPlain
)

var loads = []string{"auto", "ring", "register", "plain"}

// String returns the name that ParseLoadMode reads.
func (l LoadMode) String() string {
	if int(l) < len(loads) {
		return loads[l]
	}
	return fmt.Sprintf("Load(%d)", uint8(l))
}

// MarshalText returns the name as String does.
func (l LoadMode) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText parses text as ParseLoadMode does.
func (l *LoadMode) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLoadMode(string(text))
	return err
}

// ParseLoadMode reads auto, ring, register or plain.
func ParseLoadMode(name string) (LoadMode, error) {
	i, err := parseWord("load", name, loads)
	return LoadMode(i), err
}

// LoadModes lists the names of all load modes.
func LoadModes() []string { return slices.Clone(loads) }

// Weight is a tensor of a file to load onto a device.
type Weight struct {
	View *safetensors.View
	// DType is the type of the elements on the device: that of the view, or one
	// that the device makes of it.
	DType tensor.DType
}

// Loader is implemented by devices that load many tensors from files at once, by the method of Options.Load.
type Loader interface {
	// Load returns read-only buffers with the contents of the weights, in their order; each dtype must be one that
	// Info.Converts allows. The files are no longer needed when it returns. After an error there are no buffers.
	// Errors: ErrOutOfMemory, ErrLoad, ErrClosed, ErrLost, the error of ctx, and errors of safetensors.Load.
	Load(ctx context.Context, weights []Weight) ([]Buffer, error)
	// Loaded returns totals of all Load calls since the device was opened.
	Loaded() LoadStats
}

// LoadStats records how weights were loaded onto a device, and why by that method.
type LoadStats struct {
	Mode           LoadMode `json:"mode"` // the method of most bytes
	Why            string   `json:"why"`  // the reason for Mode
	Bytes          int64    `json:"bytes"`
	Seconds        float64  `json:"seconds"` // without allocating the device's memory
	BytesPerSecond float64  `json:"bytes_per_second"`
	Copies         int      `json:"copies"`       // number of copies; adjacent tensors share one
	Pinned         int64    `json:"pinned_bytes"` // peak of pinned host memory
	// Converted is the number of bytes that the device converted to another type.
	Converted int64       `json:"converted_bytes,omitempty"`
	Read      string      `json:"read,omitempty"` // how the files were read
	Trials    []LoadTrial `json:"trials,omitempty"`
}

// LoadTrial is the measured speed of a method on some of the bytes to load.
type LoadTrial struct {
	Mode           LoadMode `json:"mode"`
	Bytes          int64    `json:"bytes"`
	BytesPerSecond float64  `json:"bytes_per_second,omitempty"`
	Failure        string   `json:"failure,omitempty"` // why the method does not work here
}

// Add adds the statistics of a later load.
func (s *LoadStats) Add(more LoadStats) {
	if more.Bytes >= s.Bytes {
		s.Mode, s.Why = more.Mode, more.Why
	}
	s.Bytes += more.Bytes
	s.Seconds += more.Seconds
	s.BytesPerSecond = 0
	if s.Seconds > 0 {
		s.BytesPerSecond = float64(s.Bytes) / s.Seconds
	}
	s.Copies += more.Copies
	s.Converted += more.Converted
	s.Pinned = max(s.Pinned, more.Pinned)
	if more.Read != "" {
		s.Read = more.Read
	}
	s.Trials = append(s.Trials, more.Trials...)
}

// String returns the statistics in one line.
func (s LoadStats) String() string {
	took := time.Duration(s.Seconds * float64(time.Second)).Round(10 * time.Microsecond)
	return fmt.Sprintf("%.1f MB to the device in %v: %.2f GB/s by %v (%s)", float64(s.Bytes)/1e6, took, s.BytesPerSecond/1e9, s.Mode, s.Why)
}
