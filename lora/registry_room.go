package lora

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// This file implements eviction. Everything except unhold runs with Registry.mu held.

// unhold ends one hold of a version.
func (r *Registry) unhold(v *Version) {
	if v.refs.Add(-1) == 0 && v.retired.Load() {
		r.mu.Lock()
		r.collect(v)
		r.mu.Unlock()
	}
}

// collect frees a version that is no longer referenced.
func (r *Registry) collect(v *Version) {
	if !v.retired.Load() || v.flight != nil {
		return
	}
	if v.refs.CompareAndSwap(0, absent) {
		r.evict(v)
	}
	if v.refs.Load() == absent && !v.gone {
		v.gone = true
		delete(r.live, v.digest)
	}
}

// evict removes a version that can no longer be leased from devices and host.
func (r *Registry) evict(v *Version) {
	for device := range r.resident {
		r.drop(v, device)
	}
	v.state.Store(nil)
	r.bytes -= v.bytes
}

// drop removes a version from a device.
func (r *Registry) drop(v *Version, device int) {
	if v.On(device) {
		r.options.Slots[device].Drop(v)
		v.devices.And(^bit(device))
		r.resident[device]--
	}
}

// makeRoom evicts versions until n more bytes are within the limit. If that is
// impossible, it evicts none.
func (r *Registry) makeRoom(n int64) error {
	limit := r.options.HostBytes
	if limit == 0 || r.bytes+n <= limit {
		return nil
	}
	idle := r.oldest(func(v *Version) bool { return v.refs.Load() == 0 })
	free := limit - r.bytes
	for _, v := range idle {
		free += v.bytes
	}
	if n > free {
		return fmt.Errorf("lora: %w on the host: the adapter has %d bytes, expected at most %d: the limit is %d, others that are in use or pinned have %d", ErrFull, n, free, limit, limit-free)
	}
	for _, v := range idle {
		if r.bytes+n <= limit {
			break
		}
		if v.refs.CompareAndSwap(0, absent) {
			r.evict(v)
		}
	}
	if r.bytes+n > limit { // some were leased in the meantime
		return r.makeRoom(n)
	}
	return nil
}

// upload uploads a version to a device, and replaces another version if the device is
// full.
func (r *Registry) upload(ctx context.Context, v *Version, device int) error {
	if limit := r.options.MaxResident; limit > 0 && r.resident[device] >= limit {
		idle := r.oldest(func(v *Version) bool { return v.On(device) && v.uploads[device] == 0 })
		if len(idle) == 0 {
			return fmt.Errorf("lora: upload %s: %w on the device: all of %d adapters there are in use or pinned", v.digest.Short(), ErrFull, r.resident[device])
		}
		r.drop(idle[0], device)
	}
	if err := r.options.Slots[device].Put(ctx, v); err != nil {
		return fmt.Errorf("lora: upload %s: %w", v.digest.Short(), err)
	}
	v.devices.Or(bit(device))
	r.resident[device]++
	return nil
}

// closedSlots is a device that is closed.
type closedSlots struct{}

// Put implements Slots.
func (closedSlots) Put(context.Context, *Version) error { return ErrClosed }

// Drop implements Slots.
func (closedSlots) Drop(*Version) {}

// oldest returns the unpinned versions for which is returns true, least recently used
// first.
func (r *Registry) oldest(is func(*Version) bool) []*Version {
	type aged struct {
		v    *Version
		used int64
	}
	pinned := r.table.Load().pinned
	var all []aged
	for _, v := range r.live {
		if !pinned[v] && is(v) {
			all = append(all, aged{v, v.used.Load()})
		}
	}
	slices.SortFunc(all, func(x, y aged) int { return cmp.Compare(x.used, y.used) })
	out := make([]*Version, len(all))
	for i, x := range all {
		out[i] = x.v
	}
	return out
}
