package backend

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Options are what a device is opened with.
type Options struct {
	// Index is the device's number within its backend.
	Index int
	// Threads is the number of workers of a CPU device; 0 means as many as
	// the process may run at once.
	Threads int
	// Precision says how the operands of products, and values in memory, may be
	// rounded.
	Precision Precision
	// BatchInvariant makes what a row of a batch gives independent, bit for bit, of
	// how many rows there are: a sequence that is decoded gives the numbers of its
	// prefill, alone and in any company. Devices that cannot fail with ErrUnavailable.
	BatchInvariant bool
	// Load is how weights get to a device with memory of its own. Others take
	// LoadAuto and LoadPlain, and fail with ErrLoad for the rest.
	Load Load
	// Profile, if any, gets the cost of every launch.
	Profile *Profile
}

// Precision is the arithmetic of matrix products. Sums are float32 always.
type Precision uint8

const (
	// F32 multiplies operands as they are; 16-bit weights are widened.
	F32 Precision = iota
	// BF16 allows operands to be rounded to bfloat16, as PyTorch's autocast
	// does, where the machine multiplies these faster, and values to lie in
	// memory so (see Device.Stores).
	BF16
	// AutoPrecision is what the backend is best at within the limits of its
	// tests: bf16 on CUDA, f32 on the CPU. Open makes one of the others of it.
	AutoPrecision
)

var precisions = []string{"f32", "bf16", "auto"}

// On is the precision that a device of the named backend is opened with.
func (p Precision) On(name string) Precision {
	if p != AutoPrecision {
		return p
	}
	mu.RLock()
	defer mu.RUnlock()
	return drivers[name].Precision
}

// String is the name as ParsePrecision reads it.
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

// MarshalText is String.
func (p Precision) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParsePrecision.
func (p *Precision) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePrecision(string(text))
	return err
}

// parseWord finds a name among the words of an option; 0 where it is none of them.
func parseWord(option, name string, words []string) (uint8, error) {
	if i := slices.Index(words, name); i >= 0 {
		return uint8(i), nil
	}
	return 0, fmt.Errorf("%s: %s", option, suggest.Expected(name, words))
}

// Driver is a backend: it lists devices and opens them.
type Driver struct {
	// Rank orders backends for Auto, the highest first. Auto never takes one
	// below zero: it must be asked for by its name.
	Rank int
	// Devices lists what this host has. An error says why there is none.
	// Precision is what AutoPrecision means there.
	Precision Precision
	Devices   func() ([]Info, error)
	Open      func(Options) (Device, error)
}

// The kinds of devices, by which backends are called: nothing else spells them.
const (
	CPU   = "cpu"
	CUDA  = "cuda"
	Metal = "metal"
	Null  = "null" // plans and runs nothing
)

// Auto names the best backend that has a device.
const Auto = "auto"

// Choices are the names that users choose a backend by, as usage texts list them.
const Choices = Auto + ", " + CPU + ", " + CUDA + " or " + Metal

// known lists all backends of the project with what a build without them
// says, so that asking for one that is absent explains itself.
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

// Register makes a backend known under name. It panics when the name is taken.
func Register(name string, d Driver) {
	mu.Lock()
	defer mu.Unlock()
	if _, ok := drivers[name]; ok {
		panic("backend: " + name + " is registered twice")
	}
	drivers[name] = d
}

// Names lists the registered backends, the preferred first.
func Names() []string {
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

// Known lists all backends of the project in alphabetical order, whether this
// build has them or not.
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

// Open opens a device of the named backend, or of the best one that has a device for
// Auto and the empty name, which passes over devices that do not compute what they
// should (ErrFaulty). A program has those that it imports: package backend/all brings
// in those of its build. Errors: ErrUnavailable, with the reason.
func Open(name string, opts Options) (Device, error) {
	if name == "" || name == Auto {
		for _, n := range Names() {
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

// Passed says why Auto takes the backend called chosen and none that is better:
// nil where no better one is in this build.
func Passed(chosen string) error {
	var why []error
	for _, n := range Names() {
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

// noDevice is the error of Auto where no backend has a device: it says what each
// of them lacks, or what to import where there is none.
func noDevice() error {
	var why []string
	for _, n := range Names() {
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

// missing says what to import for the backends of a build.
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
	names := Names()
	switch {
	case len(names) == 0:
		return fmt.Errorf("backend %s: %w: this program imports no backend: %s", name, ErrUnavailable, missing())
	case name == CPU:
		why += ": " + missing()
	}
	return fmt.Errorf("backend %s: %w: %s; this program has: %s", name, ErrUnavailable, why, strings.Join(names, ", "))
}
