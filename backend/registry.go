package backend

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Options configure a device. The zero value opens the first device with f32 precision.
type Options struct {
	// Index is the device's number within its backend.
	Index int
	// Threads is the number of workers of a CPU device; 0 means as many as
	// the process may run at once.
	Threads int
	// Precision sets how operands of matrix multiplications, and values in memory, may be rounded.
	Precision Precision
	// BatchInvariant makes the result for a row of a batch independent, bit for bit, of the other rows: decoding a
	// sequence gives the same numbers as its prefill, alone or in any batch. Devices without support fail with
	// ErrUnavailable.
	BatchInvariant bool
	// Load is the upload method of a device with its own memory. Other devices accept LoadAuto and LoadPlain, and
	// fail with ErrLoad otherwise.
	Load LoadMode
	// Profile, if any, gets the cost of every launch.
	Profile *Profile
}

// Precision is the arithmetic of matrix multiplications. Sums are always float32.
type Precision uint8

const (
	// F32 does not round operands; 16-bit weights are widened.
	F32 Precision = iota
	// BF16 allows operands to be rounded to bfloat16, as PyTorch's autocast does, if the device multiplies them
	// faster, and values to be stored in bfloat16 (see Device.Stores).
	BF16
	// AutoPrecision is the fastest precision of the backend that passes its tests: bf16 on CUDA, f32 on the CPU. Open
	// resolves it.
	AutoPrecision
)

var precisions = []string{"f32", "bf16", "auto"}

// On returns the precision that a device of the named backend is opened with.
func (p Precision) On(name string) Precision {
	if p != AutoPrecision {
		return p
	}
	mu.RLock()
	defer mu.RUnlock()
	return drivers[name].Precision
}

// String returns the name that ParsePrecision reads.
func (p Precision) String() string {
	if int(p) < len(precisions) {
		return precisions[p]
	}
	return fmt.Sprintf("Precision(%d)", uint8(p))
}

// ParsePrecision reads f32, bf16 or auto.
func ParsePrecision(name string) (Precision, error) {
	i, err := parseWord("precision", name, precisions)
	return Precision(i), err
}

// Precisions lists the names of all precisions.
func Precisions() []string { return slices.Clone(precisions) }

// MarshalText returns the name as String does.
func (p Precision) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses text as ParsePrecision does.
func (p *Precision) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePrecision(string(text))
	return err
}

// parseWord returns the index of name in the words of an option, or 0 and an error.
func parseWord(option, name string, words []string) (uint8, error) {
	if i := slices.Index(words, name); i >= 0 {
		return uint8(i), nil
	}
	return 0, fmt.Errorf("%s: %s", option, suggest.Expected(name, words))
}

// Driver is a backend: it lists devices and opens them.
type Driver struct {
	// Rank orders backends for Auto, the highest first. Auto never selects a negative rank.
	Rank int
	// Precision is the meaning of AutoPrecision on this backend.
	Precision Precision
	// Devices lists the devices of this host. The error is the reason for having none.
	Devices func() ([]Info, error)
	// Open opens the device number Options.Index.
	Open func(Options) (Device, error)
}

// Names of the backends. Only these constants spell them.
const (
	CPU   = "cpu"
	CUDA  = "cuda"
	Metal = "metal"
	Null  = "null" // plans programs but runs nothing, to find out their memory
)

// Auto selects the best backend that has a device; see [Open].
const Auto = "auto"

// Choices lists the names by which users select a backend, for usage texts.
const Choices = Auto + ", " + CPU + ", " + CUDA + " or " + Metal

// known maps all backends of the project to the reason why a build may lack them, for the error if one is requested.
var known = map[string]string{
	CPU:   "this program does not import it",
	CUDA:  "this build has no CUDA: it is part of builds for Linux with the tag cuda",
	Metal: "this build has no Metal: it is part of builds for macOS with cgo",
}

var (
	mu      sync.RWMutex
	drivers = map[string]Driver{}
	faults  = map[string]error{} // why Auto passed over backends that have a device
)

// Register makes a backend available under a name, usually in an init function. It panics if the
// name is taken.
func Register(name string, d Driver) {
	mu.Lock()
	defer mu.Unlock()
	if _, ok := drivers[name]; ok {
		panic("backend: " + name + " is registered twice")
	}
	drivers[name] = d
}

// Registered lists the backends of this build, the preferred one first.
func Registered() []string {
	mu.RLock()
	defer mu.RUnlock()
	var names []string
	for n := range drivers {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		if c := drivers[b].Rank - drivers[a].Rank; c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	return names
}

// Known lists all backends of the project in alphabetical order, including those missing from this
// build.
func Known() []string {
	mu.RLock()
	defer mu.RUnlock()
	var names []string
	for n := range known {
		names = append(names, n)
	}
	for n := range drivers {
		if _, ok := known[n]; !ok {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// Devices lists the devices of one backend. Errors: ErrUnavailable, with the reason.
func Devices(name string) ([]Info, error) {
	mu.RLock()
	d, ok := drivers[name]
	mu.RUnlock()
	if !ok {
		return nil, absent(name)
	}
	infos, err := d.Devices()
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	return infos, nil
}

// Open opens a device of the named backend. For Auto and the empty name it opens the best backend that has a device,
// skipping devices that compute wrong results (ErrFaulty). Only imported backends are available; package backend/all
// imports all backends of the build. Errors: ErrUnavailable, with the reason.
func Open(name string, opts Options) (Device, error) {
	if name == "" || name == Auto {
		for _, n := range Registered() {
			if rank(n) < 0 {
				continue
			}
			if infos, err := Devices(n); err != nil || len(infos) == 0 {
				continue
			}
			dev, err := Open(n, opts)
			if !errors.Is(err, ErrFaulty) {
				return dev, err
			}
			mu.Lock()
			faults[n] = err
			mu.Unlock()
		}
		return nil, noDevice()
	}
	mu.RLock()
	d, ok := drivers[name]
	mu.RUnlock()
	if !ok {
		return nil, absent(name)
	}
	opts.Precision = opts.Precision.On(name)
	dev, err := d.Open(opts)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	return dev, nil
}

// SkipReason reports why Auto skipped better backends than the chosen one. It returns nil if this
// build has no better one.
func SkipReason(chosen string) error {
	var why []error
	for _, n := range Registered() {
		if n == chosen {
			break
		}
		infos, err := Devices(n)
		if err == nil && len(infos) == 0 {
			err = fmt.Errorf("backend %s: %w: no device", n, ErrUnavailable)
		}
		if err == nil {
			err = faultOf(n)
		}
		if err != nil {
			why = append(why, err)
		}
	}
	return errors.Join(why...)
}

func faultOf(name string) error {
	mu.RLock()
	defer mu.RUnlock()
	return faults[name]
}

func rank(name string) int {
	mu.RLock()
	defer mu.RUnlock()
	return drivers[name].Rank
}

// noDevice returns the error of Auto if no backend has a device: the reason for each backend, or what to import if
// there is none.
func noDevice() error {
	var why []string
	for _, n := range Registered() {
		if rank(n) < 0 {
			continue
		}
		_, err := Devices(n)
		if err == nil {
			err = faultOf(n)
		}
		if err != nil {
			why = append(why, err.Error())
		} else {
			why = append(why, "backend "+n+" lists none")
		}
	}
	if len(why) == 0 {
		why = []string{missing()}
	}
	return fmt.Errorf("backend auto: %w: no backend of this program has a device: %s", ErrUnavailable, strings.Join(why, "; "))
}

// missing returns the advice to import the backends of a build.
func missing() string {
	return `add the import _ "` + all + `", which brings in those of this build`
}

// all is the package that registers all backends of a build.
const all = "github.com/lorafuse/lorafuse/backend/all"

func absent(name string) error {
	why, ok := known[name]
	if !ok {
		return fmt.Errorf("backend %q: %w: no such backend; known: auto, %s", name, ErrUnavailable, strings.Join(Known(), ", "))
	}
	names := Registered()
	switch {
	case len(names) == 0:
		return fmt.Errorf("backend %s: %w: this program imports no backend: %s", name, ErrUnavailable, missing())
	case name == CPU:
		why += ": " + missing()
	}
	return fmt.Errorf("backend %s: %w: %s; this program has: %s", name, ErrUnavailable, why, strings.Join(names, ", "))
}
