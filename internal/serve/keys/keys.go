// Package keys checks API keys and names their owners. It keeps only digests of the keys.
package keys

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"unicode"
)

// Set holds the digests of keys with the names of their owners. A nil Set has no keys.
type Set []entry

type entry struct {
	digest [sha256.Size]byte
	name   string
}

// NewSet returns the set of keys, each written as [Parse] reads it. Keys with the same name belong
// to one owner.
func NewSet(texts []string) (s Set, err error) {
	unnamed := map[string]string{} // keys by their derived names
	for _, text := range texts {
		name, key, err := Parse(text)
		if err != nil {
			return nil, err
		}
		if other, found := unnamed[name]; found && other != key && name == Name(key) {
			return nil, fmt.Errorf("two keys have the name %s, expected NAME KEY for one of them", name)
		}
		if name == Name(key) {
			unnamed[name] = key
		}
		s = append(s, entry{sha256.Sum256([]byte(key)), name})
	}
	return s, nil
}

var ownerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,63}$`)

// Parse reads KEY or NAME KEY. A key without a name gets the one that [Name] returns.
func Parse(text string) (name, key string, err error) {
	switch words := strings.Fields(text); len(words) {
	case 0:
		return "", "", errors.New("a key is empty")
	case 1:
		name, key = Name(words[0]), words[0]
	case 2:
		if name, key = words[0], words[1]; !ownerName.MatchString(name) {
			return "", "", fmt.Errorf("the name of a key is %.80q, expected a letter, then letters, digits and . _ -, at most 64", name)
		}
	default:
		return "", "", fmt.Errorf("a key has %d spaces in it, expected KEY or NAME KEY", len(words)-1)
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		return "", "", errors.New("a key has a control character in it")
	}
	return name, key, nil
}

// Find returns the name of the owner of a key, if the set has it. Its running time does not reveal
// how much of the key is right.
func (s Set) Find(key string) (name string, ok bool) {
	digest := sha256.Sum256([]byte(key))
	for i := range s {
		if subtle.ConstantTimeCompare(s[i].digest[:], digest[:]) == 1 {
			name, ok = s[i].name, true
		}
	}
	return name, ok
}

// Name returns a name for the owner of a key, which does not reveal the key.
func Name(key string) string {
	d := sha256.Sum256([]byte(key))
	return "key-" + hex.EncodeToString(d[:4])
}

// Ring holds the keys of a server.
type Ring struct {
	Users  Set // if empty, no key is needed
	Admins Set
}

// NewRing returns the keys of users and administrators, each written as [Parse] reads it.
func NewRing(users, admins []string) (r Ring, err error) {
	if r.Users, err = NewSet(users); err == nil {
		r.Admins, err = NewSet(admins)
	}
	return r, err
}

// Client returns the client that a key belongs to; ok is false if the key is not accepted.
func (r Ring) Client(key string) (c Client, ok bool) {
	if name, isAdmin := r.Admins.Find(key); isAdmin {
		return Client{name, true}, true
	}
	name, isUser := r.Users.Find(key)
	return Client{Name: name}, isUser || r.Users == nil
}

// Client is a client of a server. The zero Client is the client of a server without keys.
type Client struct {
	Name  string // owner of the objects that the client creates
	Admin bool   // sees the objects of all owners
}

// Sees reports whether the client may see and change objects of an owner. Objects created without a
// key belong to everyone; in records of earlier versions their owner is an IP address.
func (c Client) Sees(owner string) bool {
	if c.Name == "" || c.Admin || owner == "" || owner == c.Name {
		return true
	}
	_, err := netip.ParseAddr(owner)
	return err == nil
}

// Salt returns the prefix-cache salt that separates the texts of different clients, and of one
// client by its chosen salt.
func (c Client) Salt(chosen string) string {
	if c.Name == "" {
		return chosen
	}
	return c.Name + "\x00" + chosen
}
