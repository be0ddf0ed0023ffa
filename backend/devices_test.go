package backend_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
)

func TestParseDevices(t *testing.T) {
	for text, want := range map[string][]int{
		"all": {0, 1, 2}, " all ": {0, 1, 2}, "0": {0}, "0,2": {0, 2}, "[0, 2]": {0, 2}, "[ 1 ]": {1}, "2, 0,1": {2, 0, 1},
	} {
		got, err := backend.ParseDevices(text, 3)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"3", 3, "found device 3, expected 0 to 2"},
		{"1", 1, "found device 1, expected 0, the only one"},
		{"0", 0, "found device 0, expected none: the backend has no device"},
		{"all", 0, `found "all", and the backend has no device`},
		{"0,2,0", 3, "found device 0 twice, expected each index once"},
		{"", 3, `found no device in "", expected "all" or indices such as "0,2"`},
		{"[]", 3, `found no device in "[]", expected "all" or indices such as "0,2"`},
		{"0,", 3, `found "", expected "all" or indices such as "0,2"`},
		{"-1", 3, `found "-1", expected "all" or indices such as "0,2"`},
		{"al", 3, `found "al", expected "all" or indices such as "0,2", did you mean "all"?`},
		{"[0", 3, `found "[0" without its closing bracket, expected a list such as "[0, 2]"`},
		{"0]", 3, `found "0]", expected "all" or indices such as "0,2"`},
		{"99999999999999999999", 3, `found "99999999999999999999", expected "all" or indices such as "0,2"`},
	} {
		_, err := backend.ParseDevices(c.text, c.n)
		assert.EqualError(t, err, c.want)
	}
}

// TestParseDevicesProperty: distinct indices in range are returned in their order, whatever the spaces; any other text
// is an error or selects such indices.
func TestParseDevicesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 16).Draw(t, "n")
		want := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 1, n, rapid.ID).Draw(t, "indices")
		var words []string
		for _, i := range want {
			words = append(words, rapid.StringMatching(" {0,2}").Draw(t, "space")+fmt.Sprint(i))
		}
		text := strings.Join(words, ",")
		for _, text := range []string{text, "[" + text + " ]"} {
			got, err := backend.ParseDevices(text, n)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		got, err := backend.ParseDevices(rapid.StringMatching(`[\[\]0-9, al]{0,9}`).Draw(t, "text"), n)
		if err != nil {
			return
		}
		require.NotEmpty(t, got)
		seen := map[int]bool{}
		for _, i := range got {
			require.True(t, 0 <= i && i < n && !seen[i])
			seen[i] = true
		}
	})
}
