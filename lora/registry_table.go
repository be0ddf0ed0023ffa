package lora

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// errUnknown is a name that is not in the table; it is an ErrNotFound without a hint.
var errUnknown = errors.New("unknown name")

// table maps names to versions. A table that is visible to readers is immutable.
type table struct {
	names   map[string][]*Version // the current version first, then the latest of the former
	aliases map[string]reference
	pins    map[reference]bool
	pinned  map[*Version]bool // by pins
	closed  bool
}

// reference is a name and optionally the first digits of a version's digest.
// [table.find] returns it with all digits.
type reference struct{ name, version string }

func (ref reference) String() string {
	if ref.version == "" {
		return ref.name
	}
	return ref.name + "@" + ref.version
}

// parseReference splits name@version.
func parseReference(s string) (reference, error) {
	name, version, ok := strings.Cut(s, "@")
	if err := CheckName(name); err != nil {
		return reference{}, err
	}
	if ok && (version == "" || len(version) > 2*len(Digest{}) || strings.Trim(version, "0123456789abcdef") != "") {
		return reference{}, fmt.Errorf("lora: %w: %.80q: behind @ stand the first digits of a digest, 1 to %d of 0-9 and a-f", ErrName, s, 2*len(Digest{}))
	}
	return reference{name, version}, nil
}

// maxName is the maximum length of a folder name on common file systems.
const maxName = 255

// ReservedPrefix is the prefix of the names of weights trained by clients of Tinker's
// API. Servers should reject such names for other adapters.
const ReservedPrefix = "tinker/"

// CheckName fails with ErrName if name is not a valid adapter name.
func CheckName(name string) error {
	wrong := func(why string) error { return fmt.Errorf("lora: %w: %.80q %s", ErrName, name, why) }
	if name == "" {
		return wrong("is empty")
	}
	if len(name) > maxName {
		return wrong(fmt.Sprintf("has %d bytes, at most %d", len(name), maxName))
	}
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.ContainsRune("._/-", c):
		default:
			return wrong(fmt.Sprintf("has %q in it; names have letters, digits and . _ / -", c))
		}
	}
	if strings.Contains(name, "..") {
		return wrong(`has ".." in it`)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' {
			return wrong("has a part that is empty or begins with a dot")
		}
	}
	return nil
}

// clone returns a copy that may be modified.
func (t *table) clone() *table {
	c := &table{names: maps.Clone(t.names), aliases: maps.Clone(t.aliases), pins: maps.Clone(t.pins)}
	if c.names == nil {
		c.names, c.aliases, c.pins = map[string][]*Version{}, map[string]reference{}, map[reference]bool{}
	}
	return c
}

// find resolves a reference. It returns the version, and the reference without aliases
// and with the whole digest, if it has one. It fails with errUnknown for an unknown
// name, and with ErrNotFound for an unknown version.
func (t *table) find(want reference) (reference, *Version, error) {
	if of, ok := t.aliases[want.name]; ok {
		if want.version == "" {
			want.version = of.version
		}
		want.name = of.name
	}
	versions := t.names[want.name]
	switch {
	case t.closed:
		return want, nil, ErrClosed
	case versions == nil:
		return want, nil, errUnknown
	case want.version == "":
		return want, versions[0], nil
	}
	var found *Version
	var all []string
	for _, v := range versions {
		all = append(all, v.digest.Short())
		if !strings.HasPrefix(v.digest.String(), want.version) {
			continue
		}
		if found != nil {
			return want, nil, fmt.Errorf("lora: %s: %w: several versions begin so; %q has %s", want, ErrNotFound, want.name, strings.Join(all, ", "))
		}
		found = v
	}
	if found == nil {
		return want, nil, fmt.Errorf("lora: %s: %w: %q has the versions %s", want, ErrNotFound, want.name, strings.Join(all, ", "))
	}
	return reference{want.name, found.digest.String()}, found, nil
}

// taken returns an error if the name cannot be given to an adapter because it is an
// alias.
func (t *table) taken(name string) error {
	if of, ok := t.aliases[name]; ok {
		return fmt.Errorf("lora: load %q: %w by an alias of %s", name, ErrTaken, of)
	}
	return nil
}

// put makes v the current version of a name.
func (t *table) put(name string, v *Version) {
	former := slices.DeleteFunc(slices.Clone(t.names[name]), func(x *Version) bool { return x == v })
	t.names[name] = append([]*Version{v}, former...)
}

// forget removes one version of a name, or all, and everything that refers to them.
func (t *table) forget(name string, v *Version, all bool) {
	gone := func(of reference) bool {
		return of.name == name && (of.version == v.digest.String() || all || len(t.names[name]) == 0)
	}
	t.names[name] = slices.DeleteFunc(slices.Clone(t.names[name]), func(x *Version) bool { return all || x == v })
	maps.DeleteFunc(t.aliases, func(_ string, of reference) bool { return gone(of) })
	maps.DeleteFunc(t.pins, func(of reference, _ bool) bool { return gone(of) })
	if len(t.names[name]) == 0 {
		delete(t.names, name)
	}
}

// prune removes unreferenced former versions beyond the first few.
func (t *table) prune(former int) {
	kept := map[reference]bool{}
	for _, of := range t.aliases {
		kept[of] = true
	}
	for name, versions := range t.names {
		if len(versions) <= 1+former {
			continue
		}
		var left []*Version
		for i, v := range versions {
			of := reference{name, v.digest.String()}
			if i <= former || kept[of] || t.pins[of] {
				left = append(left, v)
			}
		}
		t.names[name] = left
	}
}

// settle updates the set of pinned versions, and returns all versions in the table.
func (t *table) settle() map[*Version]bool {
	t.pinned = map[*Version]bool{}
	for of := range t.pins {
		if _, v, err := t.find(of); err == nil {
			t.pinned[v] = true
		}
	}
	named := map[*Version]bool{}
	for _, versions := range t.names {
		for _, v := range versions {
			named[v] = true
		}
	}
	return named
}
