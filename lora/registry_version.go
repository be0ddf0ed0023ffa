package lora

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Version is a loaded adapter in a [Registry]. Its bytes never change.
type Version struct {
	digest Digest

	state   atomic.Pointer[State] // on the host, or nil
	refs    atomic.Int64          // leases, or absent
	used    atomic.Int64          // when, see Registry.tick
	devices atomic.Uint64         // a bit for each device that it is on
	retired atomic.Bool           // no name refers to it
	sources atomic.Pointer[[]source]

	// Results of the first load; before it, the version is in no table.
	summary  string
	warnings []string
	rank     int
	bytes    int64

	// Registry.mu is held for these.
	flight  *flight // the pending load
	uploads []int   // leases that use it on each device
	gone    bool    // removed from Registry.live
}

// absent replaces the number of leases while a version is not on the host and cannot be
// leased.
const absent = -1

// maxDevices is the number of bits of Version.devices.
const maxDevices = 64

func bit(device int) uint64 { return 1 << uint(device) }

// On reports whether the version is on a device of its registry.
func (v *Version) On(device int) bool { return v.devices.Load()&bit(device) != 0 }

// Digest identifies the version.
func (v *Version) Digest() Digest { return v.digest }

// State returns the adapter in host memory, which is read-only. It is not nil while the
// version is leased or on a device.
func (v *Version) State() *State { return v.state.Load() }

// Bytes returns the memory size of the state.
func (v *Version) Bytes() int64 { return v.bytes }

// Warnings returns the warnings about the adapter, see [VersionInfo]. v must have been
// loaded.
func (v *Version) Warnings() []string { return v.warnings }

// hold counts one more lease, if the version is on the host.
func (v *Version) hold() bool {
	for {
		n := v.refs.Load()
		if n == absent {
			return false
		}
		if v.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Location is the fastest memory that holds a version.
type Location uint8

// The places of versions.
const (
	OnDisk Location = iota
	OnHost
	OnDevice // on one or more, and on the host
)

// String returns "disk", "host" or "device".
func (w Location) String() string {
	switch w {
	case OnDevice:
		return "device"
	case OnHost:
		return "host"
	}
	return "disk"
}

func (v *Version) info(pinned bool) VersionInfo {
	info := VersionInfo{
		Digest: v.digest, Summary: v.summary, Warnings: v.warnings, Rank: v.rank, Bytes: v.bytes, Pinned: pinned,
		Leases: int(max(0, v.refs.Load())), LastUse: time.Unix(0, v.used.Load()),
	}
	sources := *v.sources.Load()
	info.Dir = sources[len(sources)-1].String()
	switch {
	case v.devices.Load() != 0:
		info.Location = OnDevice
		for device := range v.uploads {
			if v.On(device) {
				info.Devices = append(info.Devices, device)
			}
		}
	case v.state.Load() != nil:
		info.Location = OnHost
	}
	return info
}

// describe records the results of a first load.
func (v *Version) describe(s *State, warnings []string) {
	c := s.Placement.config
	parts := []string{fmt.Sprintf("alpha %v", c.LoraAlpha), fmt.Sprintf("%d targets", len(s.Placement.Targets))}
	for _, kind := range []struct {
		name string
		is   bool
	}{
		{c.Method(), c.Method() != MethodLoRA}, {"rank-stabilized", c.UseRSLoRA}, {"biases", len(s.Placement.Biases) > 0},
		{"whole modules", len(s.Placement.Saved) > 0}, {"tokens", len(s.Placement.Tokens) > 0},
	} {
		if kind.is {
			parts = append(parts, kind.name)
		}
	}
	ranks := map[int]bool{}
	for _, t := range s.Placement.Targets {
		v.rank = max(v.rank, t.Rank)
		ranks[t.Rank] = true
	}
	upTo := ""
	if len(ranks) > 1 {
		upTo = "up to "
	}
	v.summary = fmt.Sprintf("rank %s%d, %s", upTo, v.rank, strings.Join(parts, ", "))
	v.warnings, v.bytes = slices.Clip(warnings), s.bytes()
}

// bytes returns the memory size of the state, excluding memory shared with the model.
func (s *State) bytes() (n int64) {
	seen := map[*float32]bool{} // modules that are saved whole may share memory
	floats := func(x []float32) {
		if len(x) > 0 && !seen[&x[0]] {
			seen[&x[0]] = true
			n += 4 * int64(len(x))
		}
	}
	for _, x := range s.Values {
		floats(x)
	}
	for _, first := range s.initial {
		for _, x := range first {
			floats(x)
		}
	}
	for _, t := range s.Base {
		n += int64(len(t.Data))
	}
	return n
}

// Lease holds a version: until the lease is released, the version stays unchanged and
// in memory, whatever is loaded or unloaded.
type Lease struct {
	registry *Registry
	version  *Version
	status   atomic.Int32
}

// The states of a lease. Other states are uploadedTo+device: the version stays on that
// device.
const (
	released int32 = iota - 1
	held
	uploadedTo
)

var errReleased = errors.New("lora: the lease is released")

// Acquire leases the version that ref names. It first loads a version that is on disk,
// or a name that is only a folder of Root; concurrent callers share one load. The lease
// must be released.
//
// It fails with ErrName, with ErrNotFound and the nearest names, with ErrChanged if the
// files of a version on disk have changed, with ErrFull if the host has no room, with
// the error of ctx if it ends before the load, and as [LoadState] does.
func (r *Registry) Acquire(ctx context.Context, ref string) (*Lease, error) {
	want, err := parseReference(ref)
	if err != nil {
		return nil, err
	}
	for {
		t := r.table.Load()
		_, v, err := t.find(want)
		switch {
		case errors.Is(err, errUnknown):
			if err := r.expect(ctx, want.name); err != nil {
				return nil, r.hint(want.name, err)
			}
			continue
		case err != nil:
			return nil, r.hint(want.name, err)
		case !v.hold():
			if err := r.revive(ctx, v); errors.Is(err, errGone) {
				continue // the table has changed in the meantime
			} else if err != nil {
				return nil, err
			}
		}
		v.used.Store(r.tick())
		return &Lease{registry: r, version: v}, nil
	}
}

// Share returns another lease of the same version, even if its name now refers to
// another version. The new lease must be released too. It fails if l is released.
func (l *Lease) Share() (*Lease, error) {
	if l.status.Load() == released || !l.version.hold() {
		return nil, errReleased
	}
	return &Lease{registry: l.registry, version: l.version}, nil
}

// Version returns the leased version.
func (l *Lease) Version() *Version { return l.version }

// Upload uploads the version to a device if necessary; it stays there until the lease
// is released. If the device is full, the least recently used version without a lease
// on the device is removed. Upload does not wait for room: it fails with ErrFull if all
// versions on the device are leased or pinned, with ErrUnsupported if the lease is on
// another device, which takes a lease of its own, and as [Slots.Put] does. A failure
// leaves the lease unchanged.
func (l *Lease) Upload(ctx context.Context, device int) error {
	r, v := l.registry, l.version
	if n := len(r.resident); device < 0 || device >= n {
		return fmt.Errorf("lora: upload %s: %w: device %d of a registry of %d", v.digest.Short(), ErrUnsupported, device, n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	target := uploadedTo + int32(device)
	switch status := l.status.Load(); status {
	case released:
		return errReleased
	case target:
		return nil
	case held:
	default:
		return fmt.Errorf("lora: upload %s to device %d: %w: the lease is on device %d", v.digest.Short(), device, ErrUnsupported, status-uploadedTo)
	}
	if !v.On(device) {
		if err := r.upload(ctx, v, device); err != nil {
			return err
		}
	}
	if !l.status.CompareAndSwap(held, target) {
		return errReleased
	}
	v.uploads[device]++
	return nil
}

// Release releases the version. Further calls have no effect.
func (l *Lease) Release() {
	switch status := l.status.Swap(released); status {
	case released:
		return
	case held:
	default:
		l.registry.mu.Lock()
		l.version.uploads[status-uploadedTo]--
		l.registry.mu.Unlock()
	}
	l.version.used.Store(l.registry.tick())
	l.registry.unhold(l.version)
}
