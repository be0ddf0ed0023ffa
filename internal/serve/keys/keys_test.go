package keys_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
)

// set is one that must be well-formed.
func set(t *testing.T, texts ...string) keys.Set {
	t.Helper()
	s, err := keys.NewSet(texts)
	require.NoError(t, err)
	return s
}

func TestSet(t *testing.T) {
	s := set(t, "sesame", "ann  open", " bo=1 ")
	for key, want := range map[string]string{"sesame": "key-d0c04f4b", "open": "ann", "bo=1": keys.Name("bo=1"), "Sesame": "", "sesam": "", "sesame ": "", "ann": "", "": ""} {
		name, ok := s.Find(key)
		require.Equal(t, want, name, key)
		require.Equal(t, want != "", ok, key)
	}
	require.Nil(t, set(t))
	for text, want := range map[string]string{
		"": "a key is empty", " \t": "a key is empty", "a b c": "a key has 2 spaces in it, expected KEY or NAME KEY", "1a k": `the name of a key is "1a"`,
		"ann\x00 k": "the name of a key is", "k\x00": "a control character", strings.Repeat("a", 65) + " k": "at most 64", "192.0.2.1 k": "the name of a key is",
	} {
		_, err := keys.NewSet([]string{text})
		require.ErrorContains(t, err, want, "%q", text)
	}
}

// An owner has several keys while they are replaced, also one that had no name.
func TestRotation(t *testing.T) {
	s := set(t, "key-d0c04f4b new", "sesame")
	for _, key := range []string{"new", "sesame"} {
		name, _ := s.Find(key)
		require.Equal(t, "key-d0c04f4b", name)
	}
}

func TestClient(t *testing.T) {
	ring := keys.Ring{Users: set(t, "ann a", "bob b"), Admins: set(t, "root r")}
	ann, ok := ring.Client("a")
	require.True(t, ok)
	root, ok := ring.Client("r")
	require.True(t, ok)
	_, ok = ring.Client("")
	require.False(t, ok)
	anyone, ok := keys.Ring{Admins: ring.Admins}.Client("")
	require.True(t, ok, "without keys of users")
	for owner, want := range map[string][3]bool{"ann": {true, true, true}, "bob": {false, true, true}, "root": {false, true, true}, "": {true, true, true}, "192.0.2.1": {true, true, true}, "::1": {true, true, true}} {
		assert.Equal(t, want, [3]bool{ann.Sees(owner), root.Sees(owner), anyone.Sees(owner)}, owner)
	}
	bob, _ := ring.Client("b")
	salts := map[string]bool{}
	for _, c := range []keys.Client{ann, bob, root, anyone} {
		for _, chosen := range []string{"", "x", "ann"} {
			salts[c.Salt(chosen)] = true
		}
	}
	require.Len(t, salts, 12)
	require.Equal(t, "x", anyone.Salt("x"))
}
