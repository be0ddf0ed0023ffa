package lora_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/lora"
)

// of is a reference as the model has it: to a content, or to the current one.
type of struct {
	name    string
	content int // or current
}

const (
	current = -1
	none    = -1
)

// machine is a registry beside a simple model of it, in which a version is the
// number of its content.
type machine struct {
	r       *lora.Registry
	o       lora.RegistryOptions
	devs    []*device
	dirs    []string
	digests []lora.Digest
	root    map[string]int

	names   map[string][]int
	aliases map[string]of
	pins    map[of]bool
	leases  []*lease
	used    map[int]int // when, by a clock of its own
	clock   int
}

type lease struct {
	*lora.Lease
	content int
	device  int // to which it was uploaded, or none
}

// find is what a reference means; the content is current where there is none.
func (m *machine) find(ref string) of {
	name, prefix, exact := strings.Cut(ref, "@")
	want := of{name, current}
	if a, ok := m.aliases[name]; ok {
		want = a
	}
	if len(m.names[want.name]) == 0 {
		return of{}
	}
	if exact {
		want.content = slices.IndexFunc(m.digests, func(d lora.Digest) bool { return strings.HasPrefix(d.String(), prefix) })
		if !slices.Contains(m.names[want.name], want.content) {
			return of{}
		}
	}
	return want
}

func (m *machine) content(o of) int {
	if o.content != current {
		return o.content
	}
	return m.names[o.name][0]
}

func (m *machine) touch(content int) {
	m.clock++
	m.used[content] = m.clock
}

func (m *machine) bind(name string, content int) {
	rest := slices.DeleteFunc(slices.Clone(m.names[name]), func(c int) bool { return c == content })
	m.names[name] = append([]int{content}, rest...)
	m.touch(content)
	m.prune()
}

func (m *machine) prune() {
	for name, contents := range m.names {
		var left []int
		for i, c := range contents {
			if i <= m.o.KeepVersions || m.pins[of{name, c}] || slices.Contains(slices.Collect(maps.Values(m.aliases)), of{name, c}) {
				left = append(left, c)
			}
		}
		m.names[name] = left
	}
}

func (m *machine) isPinned(content int) bool {
	for p := range m.pins {
		if m.content(p) == content {
			return true
		}
	}
	return false
}

func (m *machine) leased(content, device int) (n, uploads int) {
	for _, l := range m.leases {
		if l.content == content {
			n++
			if l.device == device {
				uploads++
			}
		}
	}
	return n, uploads
}

// places are the contents on the host, and those of them on each device.
func (m *machine) places(t *rapid.T) (host map[int]bool, devs []map[int]bool) {
	host = map[int]bool{}
	for _, l := range m.leases {
		host[l.content] = true
	}
	for _, info := range m.r.List() {
		for _, v := range info.Versions {
			host[slices.Index(m.digests, v.Digest)] = host[slices.Index(m.digests, v.Digest)] || v.Location != lora.OnDisk
		}
	}
	for _, d := range m.devs {
		dev := map[int]bool{}
		for d := range d.has {
			dev[slices.Index(m.digests, d)] = true
		}
		devs = append(devs, dev)
	}
	maps.DeleteFunc(host, func(_ int, is bool) bool { return !is })
	return host, devs
}

// gone checks who has given way: the oldest of those that might.
func (m *machine) gone(t *rapid.T, before, after map[int]bool, stays func(int) bool) {
	newest, oldest := 0, m.clock+1
	for c := range before {
		switch {
		case !after[c]:
			require.False(t, stays(c), "content %d is in use or pinned", c)
			newest = max(newest, m.used[c])
		case !stays(c):
			oldest = min(oldest, m.used[c])
		}
	}
	require.Less(t, newest, oldest, "one that was used before stays")
}

// load is a step that may bring a content to the host, after which apply changes the
// model: whether it must.
func (m *machine) load(t *rapid.T, content int, do func() error, apply func()) bool {
	host, _ := m.places(t)
	stays := map[int]bool{}
	for c := range host {
		if n, _ := m.leased(c, 0); n > 0 || m.isPinned(c) {
			stays[c] = true
		}
	}
	err := do()
	if !host[content] && int64(len(stays)) >= m.o.HostBytes/tinyBytes {
		require.ErrorIs(t, err, lora.ErrFull)
		return false
	}
	require.NoError(t, err)
	absent := !host[content]
	apply()
	if absent {
		named := map[int]bool{}
		for _, contents := range m.names {
			for _, c := range contents {
				named[c] = true
			}
		}
		maps.DeleteFunc(host, func(c int, _ bool) bool { return !named[c] }) // given up, but not for room
		now, _ := m.places(t)
		m.gone(t, host, now, func(c int) bool { return stays[c] })
	}
	return true
}

// ref draws a reference.
func (m *machine) ref(t *rapid.T) string {
	ref := rapid.SampledFrom([]string{"a", "b", "c", "x", "y", "root0", "root1"}).Draw(t, "ref")
	if rapid.IntRange(0, 2).Draw(t, "exact") == 0 {
		ref += "@" + rapid.SampledFrom(m.digests).Draw(t, "digest").Short()
	}
	return ref
}

// change is a step about a reference; apply changes the model.
func (m *machine) change(t *rapid.T, ref string, do func(string) error, apply func(of)) {
	found := m.find(ref)
	if err := do(ref); found == (of{}) {
		require.ErrorIs(t, err, lora.ErrNotFound)
		return
	} else {
		require.NoError(t, err)
	}
	apply(found)
	m.prune()
}

func (m *machine) Load(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "x"}).Draw(t, "name")
	content := rapid.IntRange(0, len(m.dirs)-1).Draw(t, "content")
	load := func() error {
		v, err := m.r.Load(context.Background(), name, m.dirs[content])
		if err == nil {
			require.Equal(t, m.digests[content], v.Digest())
		}
		return err
	}
	if _, ok := m.aliases[name]; ok {
		require.ErrorIs(t, load(), lora.ErrTaken)
	} else {
		m.load(t, content, load, func() { m.bind(name, content) })
	}
}

func (m *machine) Acquire(t *rapid.T) {
	ref := m.ref(t)
	found := m.find(ref)
	var l *lora.Lease
	acquire := func() (err error) {
		l, err = m.r.Acquire(context.Background(), ref)
		return err
	}
	name, _, _ := strings.Cut(ref, "@")
	if content, ok := m.root[name]; ok && len(m.names[name]) == 0 { // read first, whatever version is wanted
		var missing error
		if !m.load(t, content, func() error {
			err := acquire()
			if err != nil && strings.Contains(ref, "@") && !strings.HasPrefix(m.digests[content].String(), ref[len(name)+1:]) && errors.Is(err, lora.ErrNotFound) {
				missing = err
				return nil
			}
			return err
		}, func() { m.bind(name, content) }) || missing != nil {
			return
		}
		found = m.find(ref)
	} else if found == (of{}) {
		require.ErrorIs(t, acquire(), lora.ErrNotFound)
		return
	} else if !m.load(t, m.content(found), acquire, func() {}) {
		return
	}
	m.touch(m.content(found))
	m.leases = append(m.leases, &lease{l, m.content(found), none})
}

func (m *machine) lease(t *rapid.T) *lease {
	if len(m.leases) == 0 {
		t.Skip("no lease")
	}
	return rapid.SampledFrom(m.leases).Draw(t, "lease")
}

func (m *machine) Release(t *rapid.T) {
	l := m.lease(t)
	l.Release()
	l.Release()
	m.touch(l.content)
	m.leases = slices.DeleteFunc(m.leases, func(x *lease) bool { return x == l })
}

func (m *machine) Upload(t *rapid.T) {
	l, device := m.lease(t), rapid.IntRange(0, len(m.devs)-1).Draw(t, "device")
	if l.device != none && l.device != device {
		require.ErrorIs(t, l.Upload(context.Background(), device), lora.ErrUnsupported)
		return
	}
	_, devs := m.places(t)
	dev := devs[device]
	stays := func(c int) bool { _, n := m.leased(c, device); return n > 0 || m.isPinned(c) }
	n := 0
	for c := range dev {
		if stays(c) {
			n++
		}
	}
	if err := l.Upload(context.Background(), device); !dev[l.content] && n >= m.o.MaxResident {
		require.ErrorIs(t, err, lora.ErrFull)
		return
	} else {
		require.NoError(t, err)
	}
	l.device = device
	_, now := m.places(t)
	if !dev[l.content] {
		m.gone(t, dev, now[device], stays)
	}
	for i := range devs {
		if i != device {
			require.Equal(t, devs[i], now[i])
		}
	}
}

func (m *machine) Unload(t *rapid.T) {
	ref := m.ref(t)
	if _, ok := m.aliases[ref]; ok {
		require.NoError(t, m.r.Unload(ref))
		delete(m.aliases, ref)
		m.prune()
		return
	}
	m.change(t, ref, m.r.Unload, func(found of) {
		contents := slices.DeleteFunc(slices.Clone(m.names[found.name]), func(c int) bool { return found.content == current || c == found.content })
		m.names[found.name] = contents
		if len(contents) == 0 {
			delete(m.names, found.name)
		}
		gone := func(o of) bool {
			return o.name == found.name && (len(contents) == 0 || o.content != current && o.content == found.content)
		}
		maps.DeleteFunc(m.aliases, func(_ string, o of) bool { return gone(o) })
		maps.DeleteFunc(m.pins, func(o of, _ bool) bool { return gone(o) })
	})
}

func (m *machine) Alias(t *rapid.T) {
	alias := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "alias")
	if len(m.names[alias]) > 0 {
		require.ErrorIs(t, m.r.Alias(alias, "a"), lora.ErrTaken)
		return
	}
	m.change(t, m.ref(t), func(ref string) error { return m.r.Alias(alias, ref) }, func(found of) { m.aliases[alias] = found })
}

func (m *machine) Pin(t *rapid.T) {
	m.change(t, m.ref(t), m.r.Pin, func(found of) { m.pins[found] = true })
}

func (m *machine) Unpin(t *rapid.T) {
	m.change(t, m.ref(t), m.r.Unpin, func(found of) { delete(m.pins, found) })
}

func (m *machine) Check(t *rapid.T) {
	for _, l := range m.leases {
		require.Equal(t, m.digests[l.content], l.Version().Digest())
		s := l.Version().State()
		require.NotNil(t, s)
		for _, values := range s.Values {
			require.EqualValues(t, 1+l.content, values[0])
		}
		if l.device != none {
			require.True(t, m.devs[l.device].has[m.digests[l.content]])
		}
	}
	infos := m.r.List()
	require.Len(t, infos, len(m.names))
	for _, info := range infos {
		var contents []int
		for _, v := range info.Versions {
			c := slices.Index(m.digests, v.Digest)
			contents = append(contents, c)
			n, _ := m.leased(c, 0)
			require.Equal(t, n, v.Leases)
			require.Equal(t, m.isPinned(c), v.Pinned)
			var devices []int
			for i, d := range m.devs {
				if d.has[v.Digest] {
					devices = append(devices, i)
				}
			}
			require.Equal(t, devices, v.Devices)
			require.Equal(t, devices != nil, v.Location == lora.OnDevice)
		}
		require.Equal(t, m.names[info.Name], contents)
		var aliases []string
		for alias, o := range m.aliases {
			if o.name == info.Name {
				aliases = append(aliases, alias)
			}
		}
		slices.Sort(aliases)
		require.Equal(t, aliases, info.Aliases)
	}
	host, devs := m.places(t)
	require.LessOrEqual(t, int64(len(host)), m.o.HostBytes/tinyBytes)
	for _, dev := range devs {
		require.LessOrEqual(t, len(dev), m.o.MaxResident)
		for c := range dev {
			require.True(t, host[c], "what is on the device is on the host, and leased or named")
		}
	}
}

// Any order of calls does what it does to a simple model.
func TestRegistryMachine(t *testing.T) {
	root := t.TempDir()
	var dirs []string
	var digests []lora.Digest
	for i := range 7 {
		dirs = append(dirs, saveTiny(t, filepath.Join(root, "root"+strconv.Itoa(i)), float32(1+i)))
		d, err := load(t, dirs[i]).Digest()
		require.NoError(t, err)
		digests = append(digests, d)
	}
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{
			dirs: dirs, digests: digests, root: map[string]int{"root0": 0, "root1": 1},
			names: map[string][]int{}, aliases: map[string]of{}, pins: map[of]bool{}, used: map[int]int{},
		}
		var all []lora.Slots
		for range rapid.IntRange(1, 3).Draw(rt, "devices") {
			d := &device{t: t}
			m.devs, all = append(m.devs, d), append(all, d)
		}
		m.o = lora.RegistryOptions{
			Root: root, Slots: all, KeepVersions: rapid.IntRange(0, 2).Draw(rt, "former"),
			HostBytes:   tinyBytes * rapid.Int64Range(1, 5).Draw(rt, "host"),
			MaxResident: rapid.IntRange(1, 3).Draw(rt, "resident"),
		}
		r, err := lora.NewRegistry(nil, "llama", tiny, m.o)
		require.NoError(rt, err)
		m.r = r
		rt.Repeat(rapid.StateMachineActions(m))
		r.Close()
		for _, l := range m.leases {
			l.Release()
		}
		for _, l := range m.leases {
			require.Nil(rt, l.Version().State())
		}
		for _, d := range m.devs {
			require.Empty(rt, d.has)
		}
		require.Zero(rt, r.Live())
	})
}
