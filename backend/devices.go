package backend

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// AllDevices is the word that [ParseDevices] reads as all devices of a backend.
const AllDevices = "all"

// String returns the name of the device: its backend and index, as in "cuda:0".
func (i Info) String() string { return i.Backend + ":" + strconv.Itoa(i.Index) }

// Count returns the number of devices of the named backend. For Auto and the empty name it is the backend that [Open]
// selects. Errors: ErrUnavailable, with the reason.
func Count(name string) (int, error) {
	name, err := Selected(name)
	if err != nil {
		return 0, err
	}
	infos, err := Devices(name)
	return len(infos), err
}

// Selected returns the name of the backend that [Open] selects: for Auto and the empty name the best one with a device,
// else the name. Errors: ErrUnavailable, with the reason.
func Selected(name string) (string, error) {
	if name != "" && name != Auto {
		return name, nil
	}
	for _, n := range Registered() {
		if rank(n) < 0 || faultOf(n) != nil {
			continue
		}
		if infos, err := Devices(n); err == nil && len(infos) > 0 {
			return n, nil
		}
	}
	return "", noDevice()
}

// ParseDevices returns the devices that text selects among n of a backend, in its order: "all", an index such as "0",
// or a list of indices such as "0,2" or "[0, 2]".
func ParseDevices(text string, n int) ([]int, error) {
	list := strings.TrimSpace(text)
	if list == AllDevices {
		if n < 1 {
			return nil, fmt.Errorf("found %q, and the backend has no device", text)
		}
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		return all, nil
	}
	if inner, ok := strings.CutPrefix(list, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); !ok {
			return nil, fmt.Errorf(`found %.80q without its closing bracket, expected a list such as "[0, 2]"`, text)
		}
		list = strings.TrimSpace(inner)
	}
	if list == "" {
		return nil, fmt.Errorf(`found no device in %.80q, expected "all" or indices such as "0,2"`, text)
	}
	var indices []int
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		i, err := strconv.ParseUint(word, 10, 31)
		switch {
		case err != nil:
			return nil, fmt.Errorf(`found %.80q, expected "all" or indices such as "0,2"%s`, word, suggest.DidYouMean(word, []string{AllDevices}))
		case int(i) >= n:
			return nil, fmt.Errorf("found device %d, expected %s", i, expectedIndex(n))
		case slices.Contains(indices, int(i)):
			return nil, fmt.Errorf("found device %d twice, expected each index once", i)
		}
		indices = append(indices, int(i))
	}
	return indices, nil
}

// expectedIndex describes the indices of n devices.
func expectedIndex(n int) string {
	switch n {
	case 0:
		return "none: the backend has no device"
	case 1:
		return "0, the only one"
	}
	return fmt.Sprintf("0 to %d", n-1)
}

// OfRank returns the device of the rank with number local among the size ranks of its host: one of indices, or of all
// devices of the named backend if indices is nil. Ranks on a CPU share it.
func OfRank(name string, indices []int, local, size int) (int, error) {
	name, err := Selected(name)
	if err != nil || name == CPU {
		return 0, err
	}
	if indices == nil {
		n, err := Count(name)
		if err != nil {
			return 0, err
		}
		for i := range n {
			indices = append(indices, i)
		}
	}
	if local >= len(indices) {
		return 0, fmt.Errorf("found %d ranks on this host for %d devices of %s, expected one rank per device", size, len(indices), name)
	}
	return indices[local], nil
}
