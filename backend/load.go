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

// ErrLoad: the device cannot bring weights to its memory in the way that was
// asked for.
var ErrLoad = errors.New("cannot load weights by")

// Load is how weights get from their files to a device with memory of its own.
// A device that shares the host's memory uses them in place, which auto and
// plain both mean there.
type Load uint8

const (
	// LoadAuto takes what the device is able to and what is fastest for the
	// first bytes.
	LoadAuto Load = iota
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

// String is the name as ParseLoad reads it.
func (l Load) String() string {
	if int(l) < len(loads) {
		return loads[l]
	}
	return fmt.Sprintf("Load(%d)", uint8(l))
}

// MarshalText is String.
func (l Load) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText is ParseLoad.
func (l *Load) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLoad(string(text))
	return err
}

// ParseLoad reads auto, ring, register or plain.
func ParseLoad(name string) (Load, error) {
	i, err := parseWord("load", name, loads)
	return Load(i), err
}

// Loads lists the names of all ways to load.
func Loads() []string { return slices.Clone(loads) }

// Weight is a tensor of a file that a device is to have.
type Weight struct {
	View *safetensors.View
	// DType is the type of the elements on the device: that of the view, or one
	// that the device makes of it.
	DType tensor.DType
}

// Loader is a device that brings many tensors of files to its memory at once,
// in the way that Options.Load says.
type Loader interface {
	// Load gives read-only buffers with the contents of the weights, in their
	// order, of types that Info.Converts says; the files are of no more use to them
	// when it returns. After an
	// error there is none. Errors: ErrOutOfMemory, ErrLoad, ErrClosed, ErrLost,
	// the end of ctx, and those of safetensors.Load.
	Load(ctx context.Context, weights []Weight) ([]Buffer, error)
	// Loaded sums up what Load has done since the device was opened.
	Loaded() LoadStats
}

// LoadStats is how weights have come to a device, and why in that way.
type LoadStats struct {
	Mode           Load    `json:"mode"` // by which most bytes came
	Why            string  `json:"why"`  // it was this one
	Bytes          int64   `json:"bytes"`
	Seconds        float64 `json:"seconds"` // without allocating the device's memory
	BytesPerSecond float64 `json:"bytes_per_second"`
	Copies         int     `json:"copies"`       // that the device was given: neighbours go in one
	Pinned         int64   `json:"pinned_bytes"` // most host memory that was pinned at a time
	// Converted are those of the bytes that the device has made another type of.
	Converted int64       `json:"converted_bytes,omitempty"`
	Read      string      `json:"read,omitempty"` // how the files were read
	Trials    []LoadTrial `json:"trials,omitempty"`
}

// LoadTrial is how fast a way was on some of the bytes that were to be loaded.
type LoadTrial struct {
	Mode           Load    `json:"mode"`
	Bytes          int64   `json:"bytes"`
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"`
	Failure        string  `json:"failure,omitempty"` // why it is no way here
}

// Add adds what came after.
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

// String is the statistics in one line.
func (s LoadStats) String() string {
	took := time.Duration(s.Seconds * float64(time.Second)).Round(10 * time.Microsecond)
	return fmt.Sprintf("%.1f MB to the device in %v: %.2f GB/s by %v (%s)", float64(s.Bytes)/1e6, took, s.BytesPerSecond/1e9, s.Mode, s.Why)
}
